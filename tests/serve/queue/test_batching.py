"""Queues and batches: nothing lost or computed twice, limits, order, deadlines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from carpool.serve.queue.batching import (
    FRESH_US,
    MOST,
    PATIENCE_US,
    Batch,
    Batcher,
    Order,
    Queue,
    QueueRefusal,
    Recent,
    WaitingRequest,
)

MODELS = ("cat", "dog")


def batcher(order: Order = Order.FCFS, **limits: int) -> Batcher:
    made = Batcher(order)
    for name in MODELS:
        made.add_model(name, Queue(**{"most_waiting": 100, **limits}))
    return made


def ids(batch: Batch | None) -> list[int]:
    assert batch is not None
    return [request.id for request in batch.requests]


def fill(made: Batcher, *requests: WaitingRequest, now: int = 0) -> None:
    for request in requests:
        assert made.add(request, now) is None


def test_a_request_alone_is_taken_when_it_has_waited_for_others() -> None:
    made = batcher(max_batch=4, max_delay_us=1000)
    fill(made, WaitingRequest(1, "cat", 1), now=50)
    assert made.next_due() == 1050
    assert made.take(1049) is None
    assert ids(made.take(1050)) == [1]
    assert made.next_due() is None


def test_a_full_batch_does_not_wait() -> None:
    made = batcher(max_batch=4, max_delay_us=1000)
    fill(made, WaitingRequest(1, "cat", 1), WaitingRequest(2, "cat", 3), WaitingRequest(3, "cat", 1))
    batch = made.take(0)
    assert ids(batch) == [1, 2] and batch is not None and batch.rows == 4
    assert made.take(0) is None  # the third one waits for company


def test_nothing_overtakes_to_fill_a_gap() -> None:
    made = batcher(max_batch=4)
    fill(made, WaitingRequest(1, "cat", 3), WaitingRequest(2, "cat", 2), WaitingRequest(3, "cat", 1))
    assert ids(made.take(0)) == [1]
    assert ids(made.take(0)) == [2, 3]


def test_only_equal_forms_of_one_model_make_a_batch() -> None:
    made = batcher(max_batch=4)
    fill(
        made,
        WaitingRequest(1, "cat", 1, "a"),
        WaitingRequest(2, "cat", 1, "b"),
        WaitingRequest(3, "dog", 1, "a"),
        WaitingRequest(4, "cat", 1, "a"),
    )
    assert [ids(made.take(0)) for _ in range(3)] == [[1, 4], [2], [3]]


def test_the_queue_has_a_limit() -> None:
    made = batcher(most_waiting=2)
    fill(made, WaitingRequest(1, "cat", 1), WaitingRequest(2, "cat", 1))
    assert made.add(WaitingRequest(3, "cat", 1), 0) is QueueRefusal.QUEUE_FULL
    assert made.add(WaitingRequest(3, "dog", 1), 0) is None
    assert made.waiting() == {"cat": 2, "dog": 1}
    assert made.withdraw(1) and not made.withdraw(1)
    assert made.add(WaitingRequest(4, "cat", 1), 0) is None


def test_a_deadline_is_not_waited_away() -> None:
    made = batcher(max_batch=8, max_delay_us=10_000, compute_us=200, answer_us=300)
    fill(made, WaitingRequest(1, "cat", 1), WaitingRequest(2, "cat", 1, deadline_us=1000))
    assert made.next_due() == 700
    assert ids(made.take(700)) == [1, 2]


def test_what_became_late_is_taken_out() -> None:
    made = batcher(max_batch=8, max_delay_us=10_000, compute_us=300)
    fill(
        made,
        WaitingRequest(1, "cat", 1),
        WaitingRequest(2, "cat", 1, deadline_us=1000),
        WaitingRequest(3, "dog", 1, deadline_us=5000),
    )
    assert made.next_late() == 701
    assert made.expire(700) == []
    assert [request.id for request in made.expire(701)] == [2]
    assert made.next_late() == 4701
    assert made.next_due() == 4700


@pytest.mark.parametrize(
    ("order", "expected"), [(Order.FCFS, [1, 2, 3, 4]), (Order.EDF, [3, 2, 1, 4]), (Order.PRIORITY, [4, 2, 1, 3])]
)
def test_orders(order: Order, expected: list[int]) -> None:
    made = batcher(order)
    fill(
        made,
        WaitingRequest(1, "cat", 1),  # under edf as if it had PATIENCE_US
        WaitingRequest(2, "dog", 1, deadline_us=PATIENCE_US - 1, priority=2),
        WaitingRequest(3, "cat", 1, deadline_us=PATIENCE_US - 2),
        WaitingRequest(4, "dog", 1, deadline_us=PATIENCE_US + 1, priority=1),
    )
    assert [ids(made.take(0)) for _ in range(4)] == [[number] for number in expected]


@given(st.sampled_from([Order.FCFS, Order.EDF]), st.integers(0, PATIENCE_US))
def test_nobody_starves_under_overload(order: Order, budget: int) -> None:
    """One request without a deadline, then two with a deadline for each that is computed, for ever."""
    made, numbers, now = batcher(order, most_waiting=10), count(1), 0
    fill(made, WaitingRequest(0, "cat", 1), now=now)
    while now <= PATIENCE_US + 50_000:
        for _ in range(2):
            made.add(WaitingRequest(next(numbers), "dog", 1, deadline_us=now + budget), now)
        made.expire(now)
        if 0 in ids(made.take(now)):
            return
        now += 50_000
    pytest.fail("the first request was never taken")


def test_removing_a_model_names_what_waited() -> None:
    made = batcher()
    fill(made, WaitingRequest(1, "cat", 1), WaitingRequest(2, "dog", 1))
    assert [request.id for request in made.remove_model("cat")] == [1]
    with pytest.raises(KeyError):
        made.add(WaitingRequest(3, "cat", 1), 0)
    assert not made.withdraw(1)
    assert ids(made.take(0)) == [2]


def test_an_id_cannot_wait_twice() -> None:
    made = batcher()
    fill(made, WaitingRequest(1, "cat", 1))
    with pytest.raises(ValueError, match="waits already"):
        made.add(WaitingRequest(1, "dog", 1), 0)


PLACES: dict[Order, Callable[[WaitingRequest, int], tuple[int, int]]] = {
    Order.FCFS: lambda request, arrived: (arrived, request.id),
    Order.EDF: lambda request, arrived: (request.deadline_us or arrived + PATIENCE_US, request.id),
    Order.PRIORITY: lambda request, arrived: (request.priority or 99, request.id),
}


class Traffic(RuleBasedStateMachine):
    """Random traffic beside a plain account of it."""

    @initialize(
        order=st.sampled_from(Order),
        max_batch=st.integers(1, 6),
        delay=st.integers(0, 50),
        compute=st.integers(0, 30),
        most=st.integers(1, 8),
    )
    def begin(self, order: Order, max_batch: int, delay: int, compute: int, most: int) -> None:
        self.order, self.max_batch, self.delay, self.compute, self.most = order, max_batch, delay, compute, most
        limits = {"max_batch": max_batch, "max_delay_us": delay, "compute_us": compute, "most_waiting": most}
        self.batcher = batcher(order, **limits)
        self.now, self.numbers = 0, count(1)
        self.waiting: dict[int, tuple[WaitingRequest, int]] = {}  # with their arrival

    @rule(us=st.integers(1, 40))
    def time_passes(self, us: int) -> None:
        self.now += us

    @rule(
        model=st.sampled_from(MODELS),
        rows=st.integers(1, 8),
        form=st.sampled_from("ab"),
        left=st.none() | st.integers(1, 120),
        priority=st.integers(0, 3),
    )
    def a_request_comes(self, model: str, rows: int, form: str, left: int | None, priority: int) -> None:
        deadline = None if left is None else self.now + left
        request = WaitingRequest(next(self.numbers), model, rows, form, deadline, priority)
        before = sum(other.model == model for other, _ in self.waiting.values())
        refusal = self.batcher.add(request, self.now)
        if left is not None and left < self.compute:
            assert refusal is QueueRefusal.DEADLINE_MISSED
        elif before >= self.most:
            assert refusal is QueueRefusal.QUEUE_FULL
        else:
            assert refusal is None
            self.waiting[request.id] = request, self.now

    @rule(data=st.data())
    def a_client_goes(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([*self.waiting, 0]))
        assert self.batcher.withdraw(number) == (self.waiting.pop(number, None) is not None)

    @rule()
    def a_worker_is_free(self) -> None:
        late = {request.id for request in self.batcher.expire(self.now)}
        assert late == {number for number, (request, _) in self.waiting.items() if self.is_late(request)}
        for number in late:
            del self.waiting[number]
        due = self.batcher.next_due()
        batch = self.batcher.take(self.now)
        assert (batch is not None) == (due is not None and due <= self.now)
        if batch is None:
            overdue = [arrived for _, arrived in self.waiting.values() if arrived + self.delay <= self.now]
            assert overdue == []
        else:
            self.check(batch)

    def is_late(self, request: WaitingRequest) -> bool:
        return request.deadline_us is not None and self.now + self.compute > request.deadline_us

    def check(self, batch: Batch) -> None:
        taken = [self.waiting.pop(request.id) for request in batch.requests]  # none twice, none made up
        assert taken
        assert {(request.model, request.form) for request, _ in taken} == {(batch.model, taken[0][0].form)}
        assert batch.rows <= self.max_batch or len(taken) == 1
        places = [PLACES[self.order](*each) for each in taken]
        assert places == sorted(places)
        rest = [
            each for each in self.waiting.values() if (each[0].model, each[0].form) == (batch.model, taken[0][0].form)
        ]
        assert all(PLACES[self.order](*each) > places[-1] for each in rest)
        if rest:
            first = min(rest, key=lambda each: PLACES[self.order](*each))
            assert batch.rows + first[0].rows > self.max_batch  # no room was left that could have been used

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "waiting"):
            assert sum(self.batcher.waiting().values()) == len(self.waiting)


TestTraffic = Traffic.TestCase


def test_a_few_extreme_values_do_not_matter() -> None:
    recent = Recent()
    assert recent.typical(0) == 0
    for now, value in enumerate([10, 11, 500_000, 12, 1]):
        recent.add(value, now)
    assert recent.typical(4) == 11


def test_old_values_count_no_more() -> None:
    recent = Recent()
    recent.add(300, 0)
    recent.add(10, 1)
    assert recent.typical(FRESH_US) == 10, "of two the lower one"
    assert recent.typical(FRESH_US + 1) == 10
    assert recent.typical(FRESH_US + 2) == 0


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50))
def test_it_is_one_of_the_last_values(values: list[int]) -> None:
    recent = Recent()
    for value in values:
        recent.add(value, 0)
    last = sorted(values[-MOST:])
    assert recent.typical(0) == last[(len(last) - 1) // 2]
