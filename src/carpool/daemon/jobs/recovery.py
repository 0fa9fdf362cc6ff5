"""Whether a restarted daemon is still taking over the jobs of its predecessor."""

from __future__ import annotations

from collections.abc import Callable

from carpool.core.model import JobId


class Recovery:
    """Between `begin` and `end` the core knows no job, no channel is read, and messages of shims are kept for later."""

    def __init__(self) -> None:
        self.active = False
        self._missing: set[JobId] = set()

    def begin(self, missing: set[JobId]) -> None:
        """Begin the recovery.  ``missing``: jobs whose shims live but have not registered with this daemon yet."""
        self.active, self._missing = True, missing

    def came_back(self, job: JobId) -> None:
        """Record that the shim of a job has registered."""
        self._missing.discard(job)

    @property
    def missing(self) -> frozenset[JobId]:
        """The jobs whose shims lived at the last check and have not registered."""
        return frozenset(self._missing)

    def look_again(self, lives: Callable[[JobId], bool]) -> None:
        """Stop waiting for shims that have ended meanwhile."""
        self._missing = {job for job in self._missing if lives(job)}

    def end(self) -> None:
        """End the recovery: the core knows all jobs."""
        self.active = False
