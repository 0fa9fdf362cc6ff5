"""Directories of removed jobs: moved aside at once, deleted by a process with the rights of their owner.

The daemon opens only logs in these directories, to see how much space the logs take.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from carpool.core.model import JobId
from carpool.daemon.jobs.table import EndedJob
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.privileges.beneath import owner_below
from carpool.daemon.privileges.children import ended_within
from carpool.protocol.paths import Home

log = logging.getLogger(__name__)
AT_ONCE = 100  # directories that one process empties
PATIENCE_S = 60.0  # for one process; what is left is deleted with the next removal


def log_bytes(privileges: Privileges, home: Home, jobs: Iterable[EndedJob]) -> dict[JobId, int]:
    """Return the disk space that the logs of each job take."""
    return {
        job.id: sum(_room(privileges, home.job(job.id, n + 1).log, job.owner) for n in range(job.attempt))
        for job in jobs
    }


def _room(privileges: Privileges, path: Path, owner: int) -> int:
    try:
        fd = privileges.open_owned(path, owner)
    except OSError:
        return 0
    try:
        return os.fstat(fd).st_blocks * 512
    finally:
        os.close(fd)


def move_aside(privileges: Privileges, home: Home, jobs: Iterable[JobId]) -> list[JobId]:
    """Move the directories of jobs aside; return the jobs that have no directory among the live ones any more."""
    home.removed.mkdir(mode=0o700, exist_ok=True)
    return [job for job in jobs if _moved(privileges, home, job)]


def _moved(privileges: Privileges, home: Home, job: JobId) -> bool:
    try:
        privileges.set_aside(job)
    except FileNotFoundError:
        return True
    except OSError as error:  # the owner has mounted a file system there
        log.warning("cannot remove %s: %s", home.job(job).root, error.strerror)
        return False
    return True


class RemovedDirectories:
    """Deletes the contents of the removed directories, also those left by an earlier daemon."""

    def __init__(self, home: Home, privileges: Privileges, patience_s: float = PATIENCE_S) -> None:
        self._root = home.removed
        self._privileges = privileges
        self._patience_s = patience_s
        self._stubborn: set[Path] = set()

    async def delete(self) -> None:
        """Delete as much as the owners of the directories could delete.  Raises OSError."""
        for owner, batch in await asyncio.to_thread(self._batches):
            await self._empty(owner, batch)
            left = await asyncio.to_thread(_remaining, batch)
            for path in set(left) - self._stubborn:
                log.warning("not everything in %s could be removed: its owner left something there, or too much", path)
            self._stubborn.update(left)

    def _batches(self) -> list[tuple[int, list[Path]]]:
        """Return batches of directories with their owner; each batch has one owner."""
        if not self._root.is_dir():
            return []
        found = sorted((owner, path) for path in self._root.iterdir() if (owner := self._owner(path)) is not None)
        batches = []
        for owner, same in groupby(found, key=lambda pair: pair[0]):
            paths = [path for _, path in same]
            batches += [(owner, paths[first : first + AT_ONCE]) for first in range(0, len(paths), AT_ONCE)]
        return batches

    def _owner(self, path: Path) -> int | None:
        """Return the owner of a directory; None if a file system is mounted there, which is then left alone."""
        try:
            return owner_below(self._root, path)
        except OSError as error:
            if path not in self._stubborn:
                log.warning("%s cannot be removed: %s", path, error.strerror)
            self._stubborn.add(path)
            return None

    async def _empty(self, owner: int, paths: Sequence[Path]) -> None:
        """Let one process empty the directories; it is ended when its time is over or the daemon stops."""
        try:
            remover = self._privileges.spawn_remover([int(path.name) for path in paths])
        except PermissionError as error:
            log.warning("nothing in %s and %d more is removed: %s", paths[0], len(paths) - 1, error)
            return
        await ended_within(self._privileges, remover, owner, self._patience_s)


def _remaining(paths: Iterable[Path]) -> list[Path]:
    """Remove empty directories, and return those that are not empty."""
    left = []
    for path in paths:
        try:
            path.rmdir()
        except OSError:
            left.append(path)
    return left
