"""The order in which jobs get whole devices.

The order is stable: jobs of equal key keep the order they had, which is encoded in numbers.  A job whose key has become
larger since it was last looked at goes before all that have this key, one whose key has become smaller goes behind
them, and a new job comes last.  So only the keys of running jobs are ever computed again, and a pass costs the same
however many jobs wait.

Waiting jobs lie in one heap for each number of devices that they need.  Stale entries, of jobs that wait no more or at
another place, stay in the heaps and are skipped.
"""

from __future__ import annotations

import heapq

from carpool.core.model import JobId, JobPhase
from carpool.core.policies.base import Key
from carpool.core.state.job import Job, Order

ALIVE = (JobPhase.QUEUED, JobPhase.STARTING, JobPhase.RUNNING)


class WaitingOrder:
    """The jobs that wait, by number of devices; ``running``, which the caller updates: the jobs that do not."""

    def __init__(self, running: dict[JobId, Job]) -> None:
        self._running = running
        self._heaps: dict[int, list[tuple[Order, Job]]] = {}  # by the number of devices
        self._last = 0  # the largest and
        self._first = 0  # the smallest number given out to order equal keys

    def behind(self, key: Key, rank: int) -> Order:
        """Return a place behind all jobs that have this key and rank (see `Order`)."""
        self._last += 1
        return key, rank, self._last

    def before(self, key: Key, rank: int) -> Order:
        """Return a place before all jobs that have this key and rank."""
        self._first -= 1
        return key, rank, self._first

    def wait(self, job: Job) -> None:
        """Let the job wait at its place in the order, ``job.order``."""
        heap = self._heaps.get(job.spec.gang)
        if heap is None:
            heap = self._heaps[job.spec.gang] = []
        heapq.heappush(heap, (job.order, job))

    def best(self, fitting: int) -> tuple[Order, Job] | None:
        """Find the first waiting job that needs no more than ``fitting`` devices; None: there is none."""
        best = None
        for gang, heap in self._heaps.items():
            if gang <= fitting and (head := self._head(heap)) is not None and (best is None or head[0] < best[0]):
                best = head
        return best

    def _head(self, heap: list[tuple[Order, Job]]) -> tuple[Order, Job] | None:
        """Find the first entry of a heap whose job still waits there, and remove stale ones before it."""
        while heap:
            order, job = heap[0]
            if job.order is order and job.id not in self._running and job.phase in ALIVE:
                return heap[0]
            heapq.heappop(heap)
        return None

    def take(self, job: Job) -> None:
        """Remove ``job``, which `best` has found, from the jobs that wait."""
        heapq.heappop(self._heaps[job.spec.gang])

    def withdraw(self, job: Job) -> None:
        """Remove ``job``, wherever it stands, from the jobs that wait."""
        heap = self._heaps.get(job.spec.gang, [])
        heap[:] = [entry for entry in heap if entry[1] is not job]
        heapq.heapify(heap)

    def clear(self) -> None:
        """Remove all waiting jobs."""
        self._heaps = {}

    def may_wait(self) -> bool:
        """Whether any entry is left: of a job that waits, or a stale one that has not been skipped yet."""
        return any(self._heaps.values())

    def entries(self) -> set[tuple[Order, JobId]]:
        """Return all entries of the heaps, stale ones included."""
        return {(order, job.id) for heap in self._heaps.values() for order, job in heap}
