"""The order in which jobs get whole devices.

The order is stable: jobs of equal key keep the order they had.  Numbers stand for it.  A job whose key has become
larger since it was last looked at stood before all that have this key, one whose key has become smaller stood behind
them, and one that is new comes last.  So only the keys of running jobs are ever asked for again, and a pass costs the
same however many jobs wait.

Jobs that wait lie in one heap for each number of devices that they need.  Entries of jobs that do not wait any more, or
at another place, stay in the heaps and are skipped.
"""

from __future__ import annotations

import heapq

from carpool.core.model import JobId, JobPhase
from carpool.core.policies.base import Key
from carpool.core.state.job import Job, Order

ALIVE = (JobPhase.QUEUED, JobPhase.STARTING, JobPhase.RUNNING)


class WaitingOrder:
    """Who waits for how many devices; ``running`` are the jobs that do not wait, and changes outside."""

    def __init__(self, running: dict[JobId, Job]) -> None:
        self._running = running
        self._heaps: dict[int, list[tuple[Order, Job]]] = {}  # by the number of devices
        self._last = 0  # the largest and
        self._first = 0  # the smallest number given out to order equal keys

    def behind(self, key: Key, rank: int) -> Order:
        """A place behind all that have this key and rank (see `Order`)."""
        self._last += 1
        return key, rank, self._last

    def before(self, key: Key, rank: int) -> Order:
        """A place before all that have this key and rank."""
        self._first -= 1
        return key, rank, self._first

    def wait(self, job: Job) -> None:
        """The job waits at its place in the order, ``job.order``."""
        heap = self._heaps.get(job.spec.gang)
        if heap is None:
            heap = self._heaps[job.spec.gang] = []
        heapq.heappush(heap, (job.order, job))

    def best(self, fitting: int) -> tuple[Order, Job] | None:
        """The first of those that wait and need no more than ``fitting`` devices."""
        best = None
        for gang, heap in self._heaps.items():
            if gang <= fitting and (head := self._head(heap)) is not None and (best is None or head[0] < best[0]):
                best = head
        return best

    def _head(self, heap: list[tuple[Order, Job]]) -> tuple[Order, Job] | None:
        """The first of a heap that still waits there."""
        while heap:
            order, job = heap[0]
            if job.order is order and job.id not in self._running and job.phase in ALIVE:
                return heap[0]
            heapq.heappop(heap)
        return None

    def take(self, job: Job) -> None:
        """``job``, which `best` has found, waits no more."""
        heapq.heappop(self._heaps[job.spec.gang])

    def withdraw(self, job: Job) -> None:
        """``job``, wherever it stands, waits no more."""
        heap = self._heaps.get(job.spec.gang, [])
        heap[:] = [entry for entry in heap if entry[1] is not job]
        heapq.heapify(heap)

    def clear(self) -> None:
        """Nobody waits."""
        self._heaps = {}

    def may_wait(self) -> bool:
        """Whether anybody waits, or has waited and not been looked at since."""
        return any(self._heaps.values())

    def entries(self) -> set[tuple[Order, JobId]]:
        """What lies in the heaps, skipped entries included."""
        return {(order, job.id) for heap in self._heaps.values() for order, job in heap}
