"""The front of the services: requests arrive, wait in the queues that the live front has, and leave in batches.

The copying of weights to a device: one copy after another, in groups, behind which computing can begin.

A model's groups are alike: each has as many bytes, and computes for as long.  Then the recurrence of
`serve.plan.grouping`, in which a group computes when it is there and the one before has computed, has a closed form
(`finish_us`).
"""

from __future__ import annotations

from typing import NamedTuple

from carpool.core.model import Micros, Serving
from carpool.serve.queue.batching import Batch, Batcher, Order, Queue, QueueRefusal, WaitingRequest
from carpool.sim.model.served_models import ModelResult, Services


class Arrival(NamedTuple):
    """Weights that are being copied, or are there."""

    groups: int
    first_us: Micros  # when the first group is there
    there_us: Micros  # when all groups are there


def finish_us(arrival: Arrival, begin_us: Micros, compute_us: Micros) -> Micros:
    """Return when a batch is done that begins to compute at ``begin_us``.

    With c the computing of one of G groups, group k there at t(k), and f(k) its end: f(k) = max(f(k-1), t(k)) + c and
    f(0) = begin.  So f(G) is the largest of begin + Gc and all t(k) + (G - k + 1)c; t(k) is linear in k, so of the
    latter the first or the last.
    """
    last_us = -(-compute_us // arrival.groups)
    return max(begin_us + compute_us, arrival.first_us + compute_us, arrival.there_us + last_us)


class WeightCopies:
    """The copies to one device.

    ``rate``: bytes per microsecond, 0: a copy takes only the fixed time of its transfers.
    """

    def __init__(self, rate: int, group: int, transfer_us: Micros) -> None:
        self._rate = rate
        self._group = group
        self._transfer_us = transfer_us
        self._free_us: Micros = 0  # when all copies that have begun are done
        self._there: dict[str, tuple[Arrival, int]] = {}  # with their bytes
        self.resident = 0  # bytes

    def __contains__(self, key: str) -> bool:
        return key in self._there

    def copy_us(self, size: int) -> Micros:
        """Return how long a whole copy takes."""
        bytes_us = -(-size // self._rate) if self._rate else 0
        return -(-size // self._group) * self._transfer_us + bytes_us

    def place(self, key: str, size: int, now: Micros) -> bool:
        """Begin to copy weights; return False if they are there already, or being copied."""
        if key in self._there:
            return False
        begin, groups = max(now, self._free_us), max(1, -(-size // self._group))
        first = begin + self.copy_us(-(-size // groups))
        self._free_us = begin + self.copy_us(size)
        self._there[key] = (Arrival(groups, first, self._free_us), size)
        self.resident += size
        return True

    def drop(self, key: str) -> None:
        """Forget weights that the device has no longer."""
        _, size = self._there.pop(key)
        self.resident -= size

    def arrival(self, key: str) -> Arrival:
        """Return when the weights are there.  Raises KeyError."""
        return self._there[key][0]


ORDERS = {Serving.EDF: Order.EDF, Serving.FCFS: Order.FCFS, Serving.PRIORITY: Order.PRIORITY}


class ModelledFront:
    """The modelled front.  Times that are passed in never decrease."""

    def __init__(self, services: Services, serving: Serving) -> None:
        self.models = {model.name: ModelResult(model) for model in services.models}
        self._batcher = Batcher(ORDERS[serving])
        for model in services.models:
            queue = Queue(model.max_queue, model.max_batch, model.max_delay_us, model.compute_us)
            self._batcher.add_model(model.name, queue)
        coming = [(when, place) for place, model in enumerate(services.models) for when in model.arrivals_us]
        self._coming = sorted(coming, reverse=True)  # the next arrival is last
        self._names = [model.name for model in services.models]
        self._arrived: dict[int, Micros] = {}  # arrival times by the ids of unsettled requests
        self._numbers = 0

    @property
    def finished(self) -> bool:
        """Whether every request has arrived and is settled."""
        return not self._coming and not self._arrived

    def next_arrival(self) -> Micros | None:
        """Return when the next request arrives; None: all have."""
        return self._coming[-1][0] if self._coming else None

    def arrive(self, now: Micros) -> None:
        """Queue all requests that have arrived by now."""
        while self._coming and self._coming[-1][0] <= now:
            when, place = self._coming.pop()
            self._arrive(self.models[self._names[place]], when, now)

    def _arrive(self, books: ModelResult, when: Micros, now: Micros) -> None:
        model = books.model
        self._numbers += 1
        deadline = None if model.deadline_us is None else when + model.deadline_us
        request = WaitingRequest(self._numbers, model.name, 1, (), deadline, model.priority)
        refusal = self._batcher.add(request, now)
        if refusal is None:
            self._arrived[request.id] = when
        elif refusal is QueueRefusal.QUEUE_FULL:
            books.refused += 1
        else:
            books.given_up += 1

    def expire(self, now: Micros) -> None:
        """Give up requests that can no longer be answered in time."""
        for request in self._batcher.expire(now):
            del self._arrived[request.id]
            self.models[request.model].given_up += 1

    def take(self, now: Micros) -> Batch | None:
        """Return the batch that is to be computed next, if one is due."""
        self.expire(now)
        return self._batcher.take(now)

    def next_due(self) -> Micros | None:
        """Return when a batch is to be computed, if a worker is free."""
        return self._batcher.next_due()

    def next_late(self) -> Micros | None:
        """Return when a request is to be given up."""
        return self._batcher.next_late()

    def answered(self, batch: Batch, now: Micros) -> None:
        """Count a computed batch, with the latencies of its requests."""
        books = self.models[batch.model]
        books.batches += 1
        for request in batch.requests:
            books.latencies_us.append(now - self._arrived.pop(request.id))
            books.late += request.deadline_us is not None and now > request.deadline_us

    def failed(self, batch: Batch) -> None:
        """Count a batch that no worker can compute."""
        for request in batch.requests:
            del self._arrived[request.id]
        self.models[batch.model].failed += len(batch.requests)
