"""What the kernel shows of a process to every user: proc_pid_stat(5).  Standard library only."""

from __future__ import annotations

#: Places in `stat_fields`: state, parent, session, flags, number of threads, start in ticks since boot, wait status.
STATE, PARENT, SESSION, FLAGS, THREADS, START, EXIT_CODE = 0, 1, 3, 6, 17, 19, 49
OVER = (b"Z", b"X")  # states of a process whose main thread has ended
STOPPED = (b"T", b"t")  # by a signal, by a debugger


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields from the third, the state, on; empty if there is no such process, or it may not be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read(4096).rpartition(b")")[2].split()
    except OSError:
        return []
