"""Directories of removed jobs: moved aside at once, deleted by a process with the rights of their owner.

The daemon, which may be root's, opens nothing in them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path

from carpool.core.model import JobId
from carpool.daemon.jobs.table import EndedJob
from carpool.protocol.paths import Home

log = logging.getLogger(__name__)
REMOVER = Path(__file__).with_name("remove_trees.py")
AT_ONCE = 100  # directories that one process empties
PATIENCE_S = 60.0  # for one process; what is left is tried again with the next removal


def log_bytes(home: Home, jobs: Iterable[EndedJob]) -> dict[JobId, int]:
    """Room on the disk that the logs of each job take."""
    return {job.id: sum(_room(home.job(job.id, n + 1).log) for n in range(job.attempt)) for job in jobs}


def _room(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


def move_aside(home: Home, jobs: Iterable[JobId]) -> list[JobId]:
    """Those that have no directory among the jobs any more."""
    home.removed.mkdir(mode=0o700, exist_ok=True)
    return [job for job in jobs if _moved(home, job)]


def _moved(home: Home, job: JobId) -> bool:
    try:
        home.job(job).root.rename(home.removed / str(job))
    except FileNotFoundError:
        return True
    except OSError as error:  # its owner has mounted something there
        log.warning("cannot remove %s: %s", home.job(job).root, error.strerror)
        return False
    return True


class RemovedDirectories:
    """Deletes what lies among the removed directories, also what an earlier daemon has left there."""

    def __init__(self, home: Home, patience_s: float = PATIENCE_S) -> None:
        self._root = home.removed
        self._patience_s = patience_s
        self._stubborn: set[Path] = set()

    async def delete(self) -> None:
        """As far as their owners could.  Raises OSError."""
        for batch in await asyncio.to_thread(self._batches):
            await self._empty(batch)
            left = await asyncio.to_thread(_remaining, batch)
            for path in set(left) - self._stubborn:
                log.warning("not everything in %s could be removed: its owner left something there, or too much", path)
            self._stubborn.update(left)

    def _batches(self) -> list[list[Path]]:
        """Of one owner each."""
        if not self._root.is_dir():
            return []
        found = sorted((path.lstat().st_uid, path) for path in self._root.iterdir())
        batches = []
        for _, same in groupby(found, key=lambda pair: pair[0]):
            paths = [path for _, path in same]
            batches += [paths[first : first + AT_ONCE] for first in range(0, len(paths), AT_ONCE)]
        return batches

    async def _empty(self, paths: Sequence[Path]) -> None:
        """One process empties them; it is ended when the time is over, or the daemon stops."""
        status = paths[0].lstat()
        with ExitStack() as stack:
            fds = [_opened(path, stack) for path in paths]
            numbers = map(str, (status.st_uid, status.st_gid, *fds))
            command = (sys.executable, "-I", "-S", str(REMOVER), *numbers)
            null = asyncio.subprocess.DEVNULL
            remover = await asyncio.create_subprocess_exec(
                *command, pass_fds=fds, stdin=null, stdout=null, stderr=null, cwd="/", start_new_session=True
            )
        try:
            await asyncio.wait_for(remover.wait(), self._patience_s)
        except TimeoutError:
            return
        finally:
            with suppress(ProcessLookupError):
                remover.kill()
            await asyncio.shield(remover.wait())


def _opened(path: Path, stack: ExitStack) -> int:
    """The directory itself is the daemon's to open: nobody else can have put another one there.  Raises OSError."""
    path.chmod(0o700)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    return fd


def _remaining(paths: Iterable[Path]) -> list[Path]:
    """Those that are not empty."""
    left = []
    for path in paths:
        try:
            path.rmdir()
        except OSError:
            left.append(path)
    return left
