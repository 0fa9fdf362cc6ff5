"""The state of a process, as far as the kernel shows it to every user."""

from __future__ import annotations

from pathlib import Path

STOPPED, TRACED = "T", "t"
_OVER = (b"Z", b"X")
_FLAGS, _START = 6, 19  # of the fields behind the name
_EXITING = 0x4  # PF_EXITING of include/linux/sched.h


def state_of(pid: int, owner: int) -> str:
    """Return the letter for a process's state (see proc_pid_stat(5)); empty if there is none or it is not the user's.

    Jobs report the pids of their processes themselves, and the daemon's signals may reach more than their own
    processes.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return ""
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return fields["State"][0] if int(fields["Uid"].split()[0]) == owner else ""


def start_time(pid: int) -> int:
    """Return a process's start in ticks since boot, which with the pid identifies the process; 0: it has ended."""
    fields = stat_fields(pid)
    return 0 if not fields or fields[0] in _OVER else int(fields[_START])


def is_ending(pid: int) -> bool:
    """Return whether a process executes no code of its own any more; freeing its memory may still take a while."""
    fields = stat_fields(pid)
    return not fields or fields[0] in _OVER or bool(int(fields[_FLAGS]) & _EXITING)


def parent_of(pid: int) -> int:
    """Return the parent's pid; 0: the process has no parent, or has ended."""
    fields = stat_fields(pid)
    return int(fields[1]) if fields else 0


def namespaced_pids(pid: int) -> list[int]:
    """Return a process's pids, from our PID namespace to the innermost; empty if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return []
    return next(([*map(int, line.split()[1:])] for line in text.splitlines() if line.startswith("NSpid:")), [])


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of proc_pid_stat(5) from the third, the state, on; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def is_stopped(pid: int, owner: int) -> bool:
    """Return whether a user's process has been stopped, by a signal or by a debugger."""
    return state_of(pid, owner) in (STOPPED, TRACED)
