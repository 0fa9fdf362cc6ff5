"""Ends a daemon that does not come back from a call: ``python -I -S .../call_watcher.py PID FD SECONDS LOOKS``.

``FD`` is the file of `policy_calls`, which says whether the daemon is in a call, and in which.  Looks are counted, not
seconds: on a machine that stood still the daemon has its time, too, and a daemon that has been stopped is left alone.
Standard library only.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import sys


def main(daemon: int, fd: int, look_s: float, most: int) -> int:
    """Until the daemon has ended, by itself or here.  Raises OSError."""
    pidfd = os.pidfd_open(daemon)
    if os.getppid() != daemon:  # it has ended already, and the number may be another process's
        return 0
    words = memoryview(mmap.mmap(fd, 16)).cast("Q")
    seen, looks = 0, 0
    while not select.select([pidfd], [], [], look_s)[0]:
        call = words[0]
        looks = looks + 1 if call % 2 and call == seen and not stopped(daemon) else 0
        seen = call
        if looks >= most:
            words[1] = 1
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            looks = 0
    return 0


def stopped(pid: int) -> bool:
    """Whether a signal or a debugger keeps the process from running."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
