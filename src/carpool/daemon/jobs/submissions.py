"""How much each user's jobs take: jobs that have not ended, and what is kept of ended ones."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from carpool.core.model import JobId
from carpool.daemon.system.persons import person_of


def size_of(spec: msgspec.Struct) -> int:
    """Return the bytes that a submission or the registration of a model takes: command, environment and the rest."""
    return len(msgspec.json.encode(spec))


@dataclass(slots=True)
class _Held:
    jobs: int = 0
    size: int = 0

    def change(self, jobs: int, size: int) -> None:
        self.jobs += jobs
        self.size += size


class JobAmounts:
    """The number of jobs of each person, and their bytes."""

    def __init__(self) -> None:
        self._of: dict[int, _Held] = {}
        self._counted: dict[JobId, tuple[int, int]] = {}  # the person, and bytes

    def of(self, uid: int) -> tuple[int, int]:
        """Return the user's number of jobs and their total bytes."""
        held = self._of.get(person_of(uid), _Held())
        return held.jobs, held.size

    def users(self) -> list[int]:
        """List the persons who have any jobs."""
        return list(self._of)

    def add(self, job: JobId, uid: int, size: int) -> None:
        person = person_of(uid)
        self._counted[job] = person, size
        self._of.setdefault(person, _Held()).change(1, size)

    def remove(self, job: JobId) -> None:
        """Stop counting a job; does nothing if the job is not counted."""
        person, size = self._counted.pop(job, (None, 0))
        if person is None:
            return
        held = self._of[person]
        held.change(-1, -size)
        if not held.jobs:
            del self._of[person]
