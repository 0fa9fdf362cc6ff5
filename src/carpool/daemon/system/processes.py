"""Processes as far as the kernel shows them: others' states, descendants and ends, and the daemon's own limits."""

from __future__ import annotations

import errno
import fcntl
import gc
import logging
import os
import resource
import struct
from contextlib import suppress
from pathlib import Path

from carpool.protocol.packets import EXIT_CODE, FLAGS, OVER, PARENT, START, STATE, lives, stat_fields

STOPPED, TRACED = "T", "t"
_EXITING = 0x4  # PF_EXITING of include/linux/sched.h
#: linux/pidfd.h: PIDFD_GET_INFO on a struct pidfd_info of 64 bytes, the first size that existed.
_SIZE = 64
_GET_INFO = (3 << 30) | (_SIZE << 16) | (0xFF << 8) | 11
_WITH_EXIT = 1 << 3  # PIDFD_INFO_EXIT
_CODE_AT = 60
log = logging.getLogger(__name__)
_given = resource.getrlimit(resource.RLIMIT_NOFILE)  # before the daemon has raised its limit
#: New objects per collection of generation 0, collections of generation 0 per one of 1, and of 1 per one of 2.
THRESHOLDS = (1_000, 10, 100)
DAEMON = -800  # in thousandths of the machine's memory (``oom_score_adj``, proc(5))
_FILE = Path("/proc/self/oom_score_adj")


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
    return int(fields[START]) if lives(fields) else 0


def is_ending(pid: int) -> bool:
    """Return whether a process executes no code of its own any more; freeing its memory may still take a while."""
    fields = stat_fields(pid)
    return not fields or fields[STATE] in OVER or bool(int(fields[FLAGS]) & _EXITING)


def parent_of(pid: int) -> int:
    """Return the parent's pid; 0: the process has no parent, or has ended."""
    fields = stat_fields(pid)
    return int(fields[PARENT]) if fields else 0


def namespaced_pids(pid: int) -> list[int]:
    """Return a process's pids, from our PID namespace to the innermost; empty if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return []
    return next(([*map(int, line.split()[1:])] for line in text.splitlines() if line.startswith("NSpid:")), [])


def is_stopped(pid: int, owner: int) -> bool:
    """Return whether a user's process has been stopped, by a signal or by a debugger."""
    return state_of(pid, owner) in (STOPPED, TRACED)


def below(root: int) -> list[int]:
    """List the visible processes below ``root`` that have not ended, parents first, without the caller's subtree."""
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and (parent := _live_parent(int(directory.name))):
            children.setdefault(parent, []).append(int(directory.name))
    found: list[int] = []
    front = [root]
    while front:
        front = [pid for parent in front for pid in sorted(children.get(parent, ())) if pid != os.getpid()]
        found += front
    return found


def has_not_ended(pid: int) -> bool:
    """Return whether there is such a process, and any thread of it lives."""
    return _live_parent(pid) != 0


def _live_parent(pid: int) -> int:
    """Return the parent's pid; 0: the process has ended."""
    fields = stat_fields(pid)
    return int(fields[PARENT]) if lives(fields) else 0


def exit_status(pidfd: int, pid: int) -> int | None:
    """Return the wait status of a process that has ended; None: unknown.

    Until the parent has collected the process, /proc has the status, for the process's own user and for root; later the
    pidfd has it, on recent kernels.  ``pid`` is only looked at while the pidfd's process may be a zombie of that
    number.
    """
    found = _of_zombie(pid)
    told = _told(pidfd)
    return found if told is None else told


def _of_zombie(pid: int) -> int | None:
    fields = stat_fields(pid)
    return int(fields[EXIT_CODE]) if len(fields) > EXIT_CODE and fields[STATE] == b"Z" else None


def _told(pidfd: int) -> int | None:
    info = bytearray(_SIZE)
    struct.pack_into("=Q", info, 0, _WITH_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EINVAL, errno.ESRCH):  # an older kernel, or the process is a zombie
            return None
        raise
    mask, code = struct.unpack_from("=Q", info, 0)[0], struct.unpack_from("=i", info, _CODE_AT)[0]
    return code if mask & _WITH_EXIT else None


def raise_file_limit() -> None:
    """Raise the limit for this process; jobs keep the limit that the daemon was given (see `restore_file_limit`)."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_given[1], _given[1]))
    except (OSError, ValueError) as error:
        log.warning("cannot raise the limit of open files, %d: %s", _given[0], error)


def restore_file_limit(pid: int) -> None:
    """Restore the limit of a new shim that has no children yet.  Many programs break under a high limit."""
    with suppress(OSError):  # the shim has ended already
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _given)


def collect_rarely() -> None:
    """Set the thresholds of a daemon, at its start."""
    gc.set_threshold(*THRESHOLDS)


def keep_what_is_there() -> None:
    """Exclude present objects (modules, jobs of an earlier daemon) from future collections; they are freed as usual."""
    gc.collect()
    gc.freeze()


def lower_oom_score(file: Path = _FILE) -> None:
    """Lower the score of this process and its device agents; shims and other processes of users set their own.

    Needs CAP_SYS_RESOURCE; without it, or if the value is already lower, nothing changes.
    """
    with suppress(OSError, ValueError):
        if int(file.read_text()) > DAEMON:
            file.write_text(str(DAEMON))
