"""The start of a job's main process, with or without core dumps, and the search for its descendants.

Standard library only.
"""

# ruff: noqa: PTH208 - pathlib would cost a third of the start-up time

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import time
from typing import NamedTuple

from carpool.protocol.packets import PARENT, lives, stat_fields
from carpool.runtime.shim.streams import Streams
from carpool.runtime.user_process import Limits, apply_limits

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LAST_RITES_S = 5.0
#: Signals that are reset for a job in a terminal, too; its other signals stay as the user's shell has set them.
_FOREGROUND = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
#: Tells the job's processes which of them the inherited channel belongs to.
MAIN_PROCESS = "CARPOOL_JOB_PID"
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def forbid_core_dumps() -> None:
    """Forbid core dumps of this process and all its descendants, which cannot undo it.

    The limit is 1 byte, not 0: no core fits into 1 byte either, and a kernel that pipes cores to a program
    (``core_pattern``) does so in spite of a limit of 0, but not of 1 (core(5), ``do_coredump`` in fs/coredump.c).
    """
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    limit = 1 if most == resource.RLIM_INFINITY else min(most, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))


def become_subreaper() -> None:
    """Make orphans of the job children of this process, so that none escapes the end of the job."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Program(NamedTuple):
    """The job's program with its arguments, where it starts, and its environment."""

    argv: list[str]
    cwd: str
    env: dict[str, str]


def spawn(
    program: Program,
    job_fd: int,
    streams: Streams | None,
    *,
    own_group: bool = False,
    cores: bool = True,
    limits: Limits | None = None,
) -> int:
    """Start the main process; with ``streams`` in its own session, its output there.  Raises OSError, with a text.

    Forks by hand: a few system calls must be made in the child between fork and exec.  ``own_group``: without streams,
    the job leads a process group; ``cores``: the job may leave core dumps; ``limits``: of its user.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            apply_limits(limits or {})
            if not cores:
                forbid_core_dumps()
            if own_group and streams is None:
                os.setpgid(0, 0)
            _become_job(program, job_fd, streams)
        except BaseException as error:  # noqa: BLE001 - nothing may return from here
            named = getattr(error, "filename", None)  # bytes: the last place on PATH where it was looked for
            what = named if isinstance(named, str) else program.argv[0]
            reason = getattr(error, "strerror", "") or str(error)
            os.write(write_end, f"{what}: {reason}".encode(errors="replace")[:4000])
        finally:
            os._exit(127)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        failure = pipe.read()
    if failure:
        os.waitpid(pid, 0)
        raise OSError("cannot start " + failure.decode(errors="replace"))
    return pid


def _become_job(program: Program, job_fd: int, streams: Streams | None) -> None:
    argv, cwd, env = program
    if streams is not None:
        os.setsid()
        streams.take_over()
    # The job must not go on without the process that holds its memory and records its end.
    _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    for number in _FOREGROUND if streams is None else signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    if streams is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.set_inheritable(job_fd, True)
    _enter(cwd, argv[0])
    os.execvpe(argv[0], argv, {**env, MAIN_PROCESS: str(os.getpid())} if "CARPOOL_JOB" in env else env)


def _enter(cwd: str, program: str) -> None:
    """Change to the directory ``cwd``.  Raises OSError, whose text names the directory and the program."""
    try:
        os.chdir(cwd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{program} in {cwd}") from None


def descendants(ancestor: int, spare: frozenset[int]) -> list[int]:
    """Return all live processes below ``ancestor`` except the trees of ``spare``."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if lives(fields):
                children.setdefault(int(fields[PARENT]), []).append(int(name))
    found: list[int] = []
    front = [ancestor]
    while front:
        front = [pid for parent in front for pid in children.get(parent, ()) if pid not in spare]
        found += front
    return found


def _parent(pid: int) -> int:
    fields = stat_fields(pid)
    return int(fields[PARENT]) if fields else 0


def signal_all(number: int, leader: int | None, spare: frozenset[int]) -> None:
    """Signal a job's process group (``leader``, if it has its own) and the processes that have left it."""
    reached: set[int] = set()
    if leader is not None:
        reached = {pid for pid in descendants(os.getpid(), spare) if _group(pid) == leader}
    if reached:  # an empty group's number may be that of another one
        _quietly(os.killpg, leader, number)
    for pid in descendants(os.getpid(), spare):
        if pid not in reached:
            _quietly(os.kill, pid, number)


def kill_all(leader: int | None, spare: frozenset[int]) -> None:
    """Kill the remaining processes of a job and wait until they are gone; a few seconds if the kernel holds one.

    After any were found, none must be found twice: one whose parent ends while /proc is read is in no tree.
    """
    deadline, looks = time.monotonic() + LAST_RITES_S, 1
    while looks and time.monotonic() < deadline:
        left = descendants(os.getpid(), spare)
        looks = 2 if left else looks - 1
        if left:
            signal_all(signal.SIGKILL, leader, spare)
        for pid in left:
            _await_end(pid, deadline)


def reap(spare: frozenset[int]) -> None:
    """Collect orphans that have ended; children that are not the job's are left to the code that started them."""
    for name in _direct_children():
        if name not in spare:
            _quietly(os.waitpid, name, os.WNOHANG)


def children_now() -> frozenset[int]:
    """Return the process numbers of this process's children, whether or not they belong to the job."""
    return frozenset(_direct_children())


def _direct_children() -> list[int]:
    me = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(int(name)) == me]


def _await_end(pid: int, deadline: float) -> None:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
    os.close(fd)
    _quietly(os.waitpid, pid, os.WNOHANG)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _quietly(call, *arguments) -> None:  # type: ignore[no-untyped-def]
    """Call a function and ignore errors: a process may end, or its number be reused, between looking and acting."""
    with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
        call(*arguments)
