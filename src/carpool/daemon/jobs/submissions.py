"""How much of what each user has submitted is there: jobs that have not ended, and what is kept of those that have."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from carpool.core.model import JobId


def size_of(spec: msgspec.Struct) -> int:
    """Bytes that a submission, or what registers a model, takes: its command, its environment and the rest."""
    return len(msgspec.json.encode(spec))


@dataclass(slots=True)
class _Held:
    jobs: int = 0
    size: int = 0

    def change(self, jobs: int, size: int) -> None:
        self.jobs += jobs
        self.size += size


class JobAmounts:
    """Jobs of each user, and bytes."""

    def __init__(self) -> None:
        self._of: dict[int, _Held] = {}
        self._sizes: dict[JobId, int] = {}

    def of(self, uid: int) -> tuple[int, int]:
        """Jobs, and their bytes together."""
        held = self._of.get(uid, _Held())
        return held.jobs, held.size

    def users(self) -> list[int]:
        """Those who have any."""
        return list(self._of)

    def add(self, job: JobId, uid: int, size: int) -> None:
        self._sizes[job] = size
        self._of.setdefault(uid, _Held()).change(1, size)

    def remove(self, job: JobId, uid: int) -> None:
        """Nothing happens if the job does not count."""
        size = self._sizes.pop(job, None)
        if size is None:
            return
        held = self._of[uid]
        held.change(-1, -size)
        if not held.jobs:
            del self._of[uid]
