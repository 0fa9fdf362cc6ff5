"""What jobs have written: the log that the daemon keeps, or files of the user's own, which this command reads itself.

The daemon opens no files that users name: it may have rights that the user has not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.exit_codes import Exit
from carpool.protocol.api import JobInfo
from carpool.protocol.client import DaemonClient

CHUNK = 64 * 1024
POLL_S = 0.2


def kept_log(client: DaemonClient, job: JobInfo) -> str:
    """The path of the log of the present attempt, if there is one that this user may see."""
    path = client.home.job(job.id, job.attempt).log
    try:
        return str(path) if path.exists() else ""
    except OSError:  # the directory is another user's
        return ""


def own_file(client: DaemonClient, number: int, attempt: int | None, *, error: bool) -> str | None:
    """The user's file that has a stream of the job; None: the daemon keeps it.  Raises Problem."""
    job = client.job(number)
    path = (job.error or job.output if error else job.output) or None
    if error and not job.error:
        where = path or "its log"
        text = f"job {number} writes its standard error where its output goes: {where}"
        raise Problem(Exit.USAGE, "no_error_file", text, f"carpool logs {number}")
    if path and attempt is not None:
        raise Problem(Exit.USAGE, "one_file", f"all attempts of job {number} write to {path}", f"carpool logs {number}")
    if path and job.owner != os.getuid():
        text = f"job {number} writes to {path}, a file of uid {job.owner}"
        raise Problem(Exit.REFUSED, "others_file", text, "that user's own `carpool logs` reads it")
    return path


def file_pieces(client: DaemonClient, job: int, path: str, lines: int | None, *, follow: bool) -> Iterator[bytes]:
    """What is in a file that a job writes to: all, or the last ``lines``; with ``follow`` until the job has ended.

    A file that is not there yet is empty.  Raises Problem for one that cannot be read.
    """
    offset = 0
    while True:
        # Asked before reading: what a job wrote before it ended is then certain to be read.
        over = not follow or client.wait(job, 0).outcome is not None
        with _opened(path) as fd:
            if fd is not None and lines is not None:
                offset, lines = _begin_of_last(fd, lines), None
            while fd is not None and (piece := os.pread(fd, CHUNK, offset)):
                offset += len(piece)
                yield piece
        if over:
            return
        client.wait(job, POLL_S)


@contextmanager
def _opened(path: str) -> Iterator[int | None]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise Problem(Exit.REFUSED, "bad_log", f"{path} cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Problem(Exit.REFUSED, "bad_log", f"{path} is no regular file: what was written there is not kept")
        yield fd
    finally:
        os.close(fd)


def _begin_of_last(fd: int, lines: int) -> int:
    """Where the last lines begin, looked for from the end."""
    end = os.fstat(fd).st_size
    begin, left = end, lines
    while begin > 0:
        size = min(CHUNK, begin)
        piece = os.pread(fd, size, begin - size)
        body = piece[:-1] if begin == end else piece  # a line's own end does not begin another one
        if (count := body.count(b"\n")) >= left:
            place = len(body)
            for _ in range(left):
                place = body.rindex(b"\n", 0, place)
            return begin - size + place + 1
        begin, left = begin - size, left - count
    return 0
