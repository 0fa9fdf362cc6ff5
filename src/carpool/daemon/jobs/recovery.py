"""Whether a restarted daemon is still taking over the jobs of its predecessor."""

from __future__ import annotations

from collections.abc import Callable

from carpool.core.model import JobId


class Recovery:
    """Between `begin` and `end` the core knows no job, no channel is read, and what shims say is kept for later."""

    def __init__(self) -> None:
        self.active = False
        self._missing: set[JobId] = set()

    def begin(self, missing: set[JobId]) -> None:
        """``missing``: the jobs whose shims live, and have not registered with this daemon yet."""
        self.active, self._missing = True, missing

    def came_back(self, job: JobId) -> None:
        """The shim of a job has registered."""
        self._missing.discard(job)

    @property
    def missing(self) -> frozenset[JobId]:
        """The jobs whose shims lived when they were looked at last, and have not registered."""
        return frozenset(self._missing)

    def look_again(self, lives: Callable[[JobId], bool]) -> None:
        """Shims that have ended meanwhile are not waited for."""
        self._missing = {job for job in self._missing if lives(job)}

    def end(self) -> None:
        """The core knows all jobs."""
        self.active = False
