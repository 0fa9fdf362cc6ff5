"""Output of jobs: the log that the daemon keeps, or files of the user's own, which this command reads itself.

The daemon opens no files that users name, because the daemon may have rights that the user has not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.journal_jobs import JobReader, JournalJobs
from carpool.cli.render.arrays import element_id
from carpool.protocol.api import JobInfo
from carpool.protocol.display import user_name

CHUNK = 64 * 1024
POLL_S = 0.2


def kept_log(client: JobReader, job: JobInfo) -> str:
    """The path of the log of the present attempt, if there is one that this user may see."""
    path = client.home.job(job.id, job.attempt).log
    try:
        return str(path) if path.exists() else ""
    except OSError:  # the directory is another user's
        return ""


def own_file(client: JobReader, number: int, attempt: int | None, *, error: bool) -> str | None:
    """Return the user's file that has a stream of the job; None: the daemon keeps the stream.  Raises Problem."""
    job = client.job(number)
    name = element_id(job)
    if job.joined:
        text = f"job {name} has joined: its output goes where the program that started it sends it"
        raise Problem(Exit.REFUSED, "no_log", text, f"carpool show {name} has its process, directory and command")
    if error and not job.error:
        where = job.output or "its log"
        text = f"job {name} writes its standard error where its output goes: {where}"
        raise Problem(Exit.USAGE, "no_error_file", text, f"carpool logs {name}")
    path = job.error if error else job.output
    if not path:
        return None
    if attempt is not None:
        raise Problem(Exit.USAGE, "one_file", f"all attempts of job {name} write to {path}", f"carpool logs {name}")
    if job.owner != os.getuid():
        text = f"job {name} writes to {path}, a file of user {user_name(job.owner)}"
        raise Problem(Exit.REFUSED, "others_file", text, "that user's own `carpool logs` reads it")
    return path


def file_pieces(client: JobReader, job: int, path: str, lines: int | None, *, follow: bool) -> Iterator[bytes]:
    """Yield a file that a job writes to: all, or the last ``lines``; with ``follow`` until the job has ended.

    Without a daemon the job's end is not known, so the present content is all.  A file that does not exist yet is
    empty.  Raises Problem for a file that cannot be read.
    """
    offset = 0
    while True:
        # Asked before reading, so that everything is read that the job wrote before it ended.
        over = not follow or isinstance(client, JournalJobs) or client.wait(job, 0).outcome is not None
        with _opened(path) as fd:
            if fd is not None and lines is not None:
                offset, lines = _begin_of_last(fd, lines), None
            while fd is not None and (piece := os.pread(fd, CHUNK, offset)):
                offset += len(piece)
                yield piece
        if over or isinstance(client, JournalJobs):
            return
        client.wait(job, POLL_S)


def stored_log(reader: JournalJobs, number: int, attempt: int | None, lines: int | None) -> Iterator[bytes]:
    """Yield the log that Carpool keeps of an attempt (None: the latest that has begun), or its last ``lines``.

    Raises Problem for an attempt that does not exist, and for a log that cannot be read.
    """
    path = reader.home.job(number, _attempt(reader.job(number), attempt)).log
    with _opened(str(path), os.O_NOFOLLOW) as fd:
        if fd is None:
            return
        offset = max(_kept_from(fd), 0 if lines is None else _begin_of_last(fd, lines))
        while piece := os.pread(fd, CHUNK, offset):
            offset += len(piece)
            yield piece


def _attempt(job: JobInfo, asked: int | None) -> int:
    if asked is None:
        return job.attempt - 1 if job.attempt > 1 and job.started_us is None else job.attempt
    if asked > job.attempt:
        text = f"job {element_id(job)} has no attempt {asked}"
        raise Problem(Exit.NOT_FOUND, "unknown_attempt", text, f"the latest is {job.attempt}")
    return asked


def _kept_from(fd: int) -> int:
    """Return the offset of the oldest byte that a log still has; older parts may have been deleted."""
    try:
        return os.lseek(fd, 0, os.SEEK_DATA)
    except OSError:  # the log has no data, or the file system has no holes
        return 0


@contextmanager
def _opened(path: str, flags: int = 0) -> Iterator[int | None]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise Problem(Exit.REFUSED, "bad_log", f"{path} cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Problem(Exit.REFUSED, "bad_log", f"{path} is not a regular file: output written there is not kept")
        yield fd
    finally:
        os.close(fd)


def _begin_of_last(fd: int, lines: int) -> int:
    """Return the offset at which the last ``lines`` begin, searching from the end."""
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
