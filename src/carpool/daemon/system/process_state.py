"""What a process is doing, as far as the kernel tells everybody."""

from __future__ import annotations

from pathlib import Path

STOPPED, TRACED = "T", "t"


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


def is_stopped(pid: int, owner: int) -> bool:
    """Whether a user's process has been stopped, by a signal or by a debugger."""
    return state_of(pid, owner) in (STOPPED, TRACED)
