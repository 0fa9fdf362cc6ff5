"""The requests that wait, and the next ones that are computed together.  Pure: times are integers of microseconds.

Requests of one model whose inputs agree in all but the first dimension form a *group*; a batch comes from one group:

- A group is *due* when it fills a batch, when a request of it has waited for the model's `max_delay_us`, or when one
  has to start now to be answered by its deadline.
- Of all due groups, of all models, that of the first request in the order is taken, from its first request on, until
  the next one would not fit any more.  No request overtakes within a group, not even to fill a gap.
- A request that cannot be answered by its deadline any more, because the model's computation alone takes longer than is
  left, is *late*: it is never taken, and is refused at once if it is late when it comes.

Orders: `fcfs` by arrival; `edf` by deadline; `priority` by priority (1 first, 0 last), then by arrival.  None starves a
request within its priority: later requests go before it for a bounded time only.  For that `edf` treats a request
without a deadline as if it had one `PATIENCE_US` after its arrival.  A lower priority starves while higher ones fill
the device.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from carpool.core.stats import PPM, quantile

PATIENCE_US = 1_000_000
LAST = 2**63  # below every priority that a request can name


class Order(StrEnum):
    """The order in which requests are computed: by arrival, by deadline, or by the rank of their model."""

    FCFS = "fcfs"
    EDF = "edf"
    PRIORITY = "priority"


class QueueRefusal(Enum):
    """The refusal of a request by its queue."""

    QUEUE_FULL = "queue full"
    DEADLINE_MISSED = "deadline missed"


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request as the queue sees it.  ``id`` is unique and grows; ``form``: what has to be equal within a batch."""

    id: int
    model: str
    rows: int
    form: Hashable = ()
    deadline_us: int | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests of one model and form, in order; at least one."""

    model: str
    requests: tuple[WaitingRequest, ...]

    @property
    def rows(self) -> int:
        """The rows of all requests together."""
        return sum(request.rows for request in self.requests)


@dataclass(order=True, frozen=True, slots=True)
class _Entry:
    place: tuple[int, int, int]  # in the order; the last is the id
    arrived_us: int = field(compare=False)
    request: WaitingRequest = field(compare=False)


@dataclass(slots=True)
class Queue:
    """The requests that wait for a model, and its limits.

    ``compute_us``: the time to compute a batch; ``answer_us``: the same with all waiting for weights, the turn and the
    way there and back.  The code that measures them writes them here.
    """

    most_waiting: int  # requests
    max_batch: int = 1  # rows; a request that has more is a batch of its own
    max_delay_us: int = 0
    compute_us: int = 0
    answer_us: int = 0
    groups: dict[Hashable, list[_Entry]] = field(default_factory=dict, init=False)  # in order; none of them is empty
    deadlines: list[tuple[int, int]] = field(default_factory=list, init=False)  # with the ids; sorted

    def __len__(self) -> int:
        return sum(map(len, self.groups.values()))

    def put(self, entry: _Entry) -> None:
        """Add a request, in its place."""
        request = entry.request
        insort(self.groups.setdefault(request.form, []), entry)
        if request.deadline_us is not None:
            insort(self.deadlines, (request.deadline_us, request.id))

    def remove(self, entry: _Entry) -> None:
        """Remove a request that waits."""
        request = entry.request
        group = self.groups[request.form]
        del group[bisect_left(group, entry)]
        if not group:
            del self.groups[request.form]
        if request.deadline_us is not None:
            del self.deadlines[bisect_left(self.deadlines, (request.deadline_us, request.id))]

    def is_late(self, deadline_us: int | None, now_us: int) -> bool:
        """Whether computing alone takes longer than until the deadline."""
        return deadline_us is not None and now_us + self.compute_us > deadline_us

    def head(self, group: list[_Entry]) -> tuple[list[_Entry], bool]:
        """Return the batch at the head of a group, and whether it is full."""
        rows = 0
        for place, entry in enumerate(group):
            if rows and rows + entry.request.rows > self.max_batch:
                return group[:place], True
            rows += entry.request.rows
        return group[:], rows >= self.max_batch

    def due_us(self, group: list[_Entry]) -> int:
        """Return when the head of a group must be taken."""
        entries, full = self.head(group)
        if full:
            return max(entry.arrived_us for entry in entries)
        return min(map(self._start_us, entries))

    def _start_us(self, entry: _Entry) -> int:
        waited, deadline = entry.arrived_us + self.max_delay_us, entry.request.deadline_us
        return waited if deadline is None else min(waited, deadline - max(self.compute_us, self.answer_us))


class Batcher:
    """All waiting requests.  The times that are passed in never decrease.

    The driver calls `expire`, and then `take` while it can compute, whenever something has changed or one of the times
    `next_due` and `next_late` has come.
    """

    def __init__(self, order: Order = Order.FCFS) -> None:
        self.order = order
        self._queues: dict[str, Queue] = {}
        self._entries: dict[int, _Entry] = {}

    def add_model(self, name: str, queue: Queue) -> None:
        """Add a model, with its queue."""
        self._queues[name] = queue

    def remove_model(self, name: str) -> tuple[WaitingRequest, ...]:
        """Remove a model and return the requests that still waited for it.  Raises KeyError."""
        waiting = tuple(entry.request for entry in self._entries.values() if entry.request.model == name)
        for request in waiting:
            del self._entries[request.id]
        del self._queues[name]
        return waiting

    def waiting(self) -> dict[str, int]:
        """Return how many requests wait for each model."""
        return {name: len(queue) for name, queue in self._queues.items()}

    def add(self, request: WaitingRequest, now_us: int) -> QueueRefusal | None:
        """Add a request; return None if it waits from now on, else why it is refused.

        Raises KeyError for an unknown model, ValueError for an id that waits already.
        """
        queue = self._queues[request.model]
        if request.id in self._entries:
            raise ValueError(f"request {request.id} waits already")
        if queue.is_late(request.deadline_us, now_us):
            return QueueRefusal.DEADLINE_MISSED
        if len(queue) >= queue.most_waiting:
            return QueueRefusal.QUEUE_FULL
        entry = _Entry(self._place(request, now_us), now_us, request)
        queue.put(entry)
        self._entries[request.id] = entry
        return None

    def withdraw(self, number: int) -> bool:
        """Forget a request.  Returns False if it does not wait."""
        entry = self._entries.pop(number, None)
        if entry is None:
            return False
        self._queues[entry.request.model].remove(entry)
        return True

    def expire(self, now_us: int) -> list[WaitingRequest]:
        """Remove and return the requests that are late by now, in order of deadlines for each model."""
        late = []
        for queue in self._queues.values():
            while queue.deadlines and queue.is_late(queue.deadlines[0][0], now_us):
                entry = self._entries.pop(queue.deadlines[0][1])
                queue.remove(entry)
                late.append(entry.request)
        return late

    def take(self, now_us: int) -> Batch | None:
        """Return the batch that is to be computed now, or None; `expire` must have been called for this time."""
        due = [
            (group[0], queue)
            for queue in self._queues.values()
            for group in queue.groups.values()
            if queue.due_us(group) <= now_us
        ]
        if not due:
            return None
        first, queue = min(due, key=lambda each: each[0])
        entries, _ = queue.head(queue.groups[first.request.form])
        for entry in entries:
            self.withdraw(entry.request.id)
        return Batch(first.request.model, tuple(entry.request for entry in entries))

    def next_due(self) -> int | None:
        """Return the time from which `take` has a batch, which may be in the past; None if no request waits."""
        groups = ((queue, group) for queue in self._queues.values() for group in queue.groups.values())
        return min((queue.due_us(group) for queue, group in groups), default=None)

    def next_late(self) -> int | None:
        """Return the time from which `expire` has a request; None if no waiting request has a deadline."""
        firsts = (queue.deadlines[0][0] - queue.compute_us for queue in self._queues.values() if queue.deadlines)
        return min((latest + 1 for latest in firsts), default=None)

    def _place(self, request: WaitingRequest, now_us: int) -> tuple[int, int, int]:
        match self.order:
            case Order.FCFS:
                return 0, now_us, request.id
            case Order.EDF:
                deadline = request.deadline_us
                return 0, now_us + PATIENCE_US if deadline is None else deadline, request.id
            case Order.PRIORITY:
                return request.priority or LAST, now_us, request.id


#: Age at which values expire: a single slow one must not keep a model from being tried again.
FRESH_US = 2_000_000
MOST = 16


class Recent:
    """The latest values; a few extreme ones do not matter.  The times that are passed in never decrease."""

    def __init__(self) -> None:
        self._values: deque[tuple[int, int]] = deque(maxlen=MOST)

    def add(self, value_us: int, now_us: int) -> None:
        """Add a value, in microseconds."""
        self._values.append((now_us, value_us))

    def typical(self, now_us: int) -> int:
        """Return the median, the lower one of two; 0 if no recent value is known."""
        while self._values and self._values[0][0] < now_us - FRESH_US:
            self._values.popleft()
        return quantile([value for _, value in self._values], PPM // 2) if self._values else 0
