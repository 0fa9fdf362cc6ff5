"""Directories of removed jobs: moved aside at once, deleted by a process with the rights of their owner."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from carpool.core.model import JobId
from carpool.daemon.privileges.base import Privileges, ended_within
from carpool.daemon.privileges.direct import owner_below
from carpool.protocol.paths import Home

log = logging.getLogger(__name__)
AT_ONCE = 100  # directories that one process empties
PATIENCE_S = 60.0  # for one process; what is left is deleted with the next removal


class RemovedDirectories:
    """Moves directories aside and deletes what is there, also what an earlier daemon has left."""

    def __init__(self, home: Home, privileges: Privileges, patience_s: float = PATIENCE_S) -> None:
        self._home = home
        self._privileges = privileges
        self._patience_s = patience_s
        self._stubborn: set[Path] = set()

    def move_aside(self, jobs: Iterable[JobId]) -> list[JobId]:
        """Move the directories of jobs aside; return the jobs that have none among the live ones any more."""
        self._home.removed.mkdir(mode=0o700, exist_ok=True)
        return [job for job in jobs if self._moved(job)]

    def _moved(self, job: JobId) -> bool:
        try:
            self._privileges.set_aside(job)
        except FileNotFoundError:
            return True
        except OSError as error:  # the owner has mounted a file system there
            log.warning("cannot remove %s: %s", self._home.job(job).root, error.strerror)
            return False
        return True

    async def delete(self) -> None:
        """Delete as much as the owners of the directories could delete.  Raises OSError."""
        for owner, batch in await asyncio.to_thread(self._batches):
            try:
                remover = self._privileges.spawn_remover([int(path.name) for path in batch])
            except PermissionError as error:
                log.warning("nothing in %s and %d more is removed: %s", batch[0], len(batch) - 1, error)
            else:
                await ended_within(self._privileges, remover, owner, self._patience_s)
            await asyncio.to_thread(self._remove_empty, batch)

    def _batches(self) -> list[tuple[int, list[Path]]]:
        """Return batches of directories with their owner, without those on which a file system is mounted."""
        of_owner: dict[int, list[Path]] = defaultdict(list)
        for path in sorted(self._home.removed.iterdir()) if self._home.removed.is_dir() else ():
            try:
                of_owner[owner_below(self._home.removed, path)].append(path)
            except OSError as error:
                self._report(path, f"it cannot be removed: {error.strerror}")
        return [
            (owner, paths[first : first + AT_ONCE])
            for owner, paths in of_owner.items()
            for first in range(0, len(paths), AT_ONCE)
        ]

    def _remove_empty(self, paths: Sequence[Path]) -> None:
        for path in paths:
            try:
                path.rmdir()
            except OSError:
                self._report(path, "not everything could be removed: its owner left something there, or too much")

    def _report(self, path: Path, text: str) -> None:
        """Log what is wrong with a directory, once."""
        if path not in self._stubborn:
            log.warning("%s: %s", path, text)
        self._stubborn.add(path)
