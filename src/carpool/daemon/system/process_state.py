"""What a process is doing, as far as the kernel tells everybody."""

from __future__ import annotations

from pathlib import Path

STOPPED, TRACED = "T", "t"
_OVER = (b"Z", b"X")
_FLAGS, _START = 6, 19  # of the fields behind the name
_EXITING = 0x4  # PF_EXITING of include/linux/sched.h


def state_of(pid: int, owner: int) -> str:
    """The letter for a process's state (see proc_pid_stat(5)); empty if there is none, or if it is not that user's.

    Jobs say themselves what their process is called, and our signals may reach more than theirs.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return ""
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return fields["State"][0] if int(fields["Uid"].split()[0]) == owner else ""


def start_time(pid: int) -> int:
    """When a process started, in ticks since the machine did: with its number that is the process.  0: it has ended."""
    fields = stat_fields(pid)
    return 0 if not fields or fields[0] in _OVER else int(fields[_START])


def is_ending(pid: int) -> bool:
    """Whether a process executes nothing of its own any more; without its memory, which takes its time, it is gone."""
    fields = stat_fields(pid)
    return not fields or fields[0] in _OVER or bool(int(fields[_FLAGS]) & _EXITING)


def parent_of(pid: int) -> int:
    """0: it has none, or has ended."""
    fields = stat_fields(pid)
    return int(fields[1]) if fields else 0


def namespaced_pids(pid: int) -> list[int]:
    """Its numbers, from our PID namespace to the innermost; none if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return []
    return next(([*map(int, line.split()[1:])] for line in text.splitlines() if line.startswith("NSpid:")), [])


def stat_fields(pid: int) -> list[bytes]:
    """Those of proc_pid_stat(5) from the state on, which is the third; none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def is_stopped(pid: int, owner: int) -> bool:
    """Whether a user's process has been stopped, by a signal or by a debugger."""
    return state_of(pid, owner) in (STOPPED, TRACED)
