"""The machine's own memory, which the processes of jobs have beside their devices."""

from __future__ import annotations

from collections.abc import Mapping

from carpool.core.model import MIB, JobId

#: Bytes that a process is expected to need until a run of its command has succeeded: those of one with PyTorch.
UNKNOWN = 256 * MIB
#: Most commands that are remembered.
MOST_KINDS = 1000


class HostUse:
    """``free``: bytes that jobs may still take; None: not measured.  ``cores``: processors, if it is measured.

    ``waiter``: a queued job that has been turned away for want of memory.
    """

    def __init__(self) -> None:
        self.free: int | None = None
        self.cores = 0
        self.missing: int | None = None  # that started jobs are still going to need; None: not worked out yet
        self.waiter: JobId | None = None
        self._used: dict[JobId, int] = {}
        self._most: dict[str, int] = {}  # by kind of job, of all its runs that were measured
        self._succeeded: set[str] = set()  # kinds of which a run has come to its end

    @property
    def measured(self) -> bool:
        return self.free is not None

    def told(self, used: Mapping[JobId, int], kinds: Mapping[JobId, str]) -> None:
        """Record what some jobs have now; ``kinds``: the kinds of the ones that have not ended."""
        for job, kind in kinds.items():
            self._used[job] = used[job]
            self._remember(kind, used[job])

    def expected(self, kind: str) -> int:
        """Return the bytes that a job of this kind is going to need in all, at least."""
        most = self._most.get(kind, 0)
        return most if kind in self._succeeded else max(most, UNKNOWN)

    def still_needs(self, job: JobId, kind: str) -> int:
        """Return the bytes that a started job is expected to take beside what it has."""
        return max(0, self.expected(kind) - self._used.get(job, 0))

    def over(self, job: JobId, kind: str, succeeded: bool) -> None:
        """Forget what an attempt that has ended had; if it succeeded, its kind is known."""
        self._used.pop(job, None)
        if succeeded and kind:
            self._remember(kind, 0)
            self._succeeded.add(kind)

    def _remember(self, kind: str, size: int) -> None:
        """Record the most that a kind has used; what was seen last is forgotten last."""
        if not kind:
            return
        self._most[kind] = max(size, self._most.pop(kind, 0))
        if len(self._most) > MOST_KINDS:
            oldest = next(iter(self._most))
            del self._most[oldest]
            self._succeeded.discard(oldest)
