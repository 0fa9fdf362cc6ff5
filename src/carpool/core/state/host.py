"""The machine's own memory, which the processes of jobs have beside their devices."""

from __future__ import annotations

from collections.abc import Mapping

from carpool.core.model import MIB, JobId

#: What a process of a job is expected to need, of whose command no run has succeeded yet: one with PyTorch in it.
UNKNOWN = 256 * MIB
#: Commands that are remembered.
MOST_KINDS = 1000


class HostUse:
    """``free``: bytes that jobs may still take; None: nobody measures that.  ``cores``: processors, if it is measured.

    ``waits``: a job has been turned away for want of memory.
    """

    def __init__(self) -> None:
        self.free: int | None = None
        self.cores = 0
        self.missing: int | None = None  # that started jobs are still going to need; None: not worked out yet
        self.waits = False
        self._used: dict[JobId, int] = {}
        self._most: dict[str, int] = {}  # by kind of job, of all its runs that were measured
        self._succeeded: set[str] = set()  # kinds of which a run has come to its end

    @property
    def measured(self) -> bool:
        return self.free is not None

    def told(self, used: Mapping[JobId, int], kinds: Mapping[JobId, str]) -> None:
        """What some jobs have now; ``kinds``: of those that have not ended."""
        for job, kind in kinds.items():
            self._used[job] = used[job]
            self._remember(kind, used[job])

    def expected(self, kind: str) -> int:
        """What a job of this kind is going to need in all, at least."""
        most = self._most.get(kind, 0)
        return most if kind in self._succeeded else max(most, UNKNOWN)

    def still_needs(self, job: JobId, kind: str) -> int:
        """What a started job is expected to take beside what it has."""
        return max(0, self.expected(kind) - self._used.get(job, 0))

    def over(self, job: JobId, kind: str, succeeded: bool) -> None:
        """An attempt has ended."""
        self._used.pop(job, None)
        if succeeded and kind:
            self._remember(kind, 0)
            self._succeeded.add(kind)

    def _remember(self, kind: str, size: int) -> None:
        """What was seen last is forgotten last."""
        if not kind:
            return
        self._most[kind] = max(size, self._most.pop(kind, 0))
        if len(self._most) > MOST_KINDS:
            oldest = next(iter(self._most))
            del self._most[oldest]
            self._succeeded.discard(oldest)
