"""Requests and the workers that compute them: batches, deadlines, faults; with workers that only pretend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from carpool.serve.metrics import Metrics
from carpool.serve.oip.errors import (
    DeadlineMissed,
    ModelFailed,
    ModelTooLarge,
    ModelUnavailable,
    QueueFull,
    ServeError,
    WorkerLost,
)
from carpool.serve.oip.messages import InferRequest, WantedOutput
from carpool.serve.oip.values import Tensor
from carpool.serve.queue import dispatcher
from carpool.serve.queue.batching import Order, Queue, Recent
from carpool.serve.queue.dispatcher import Dispatcher, now_us
from tests.serve.backend import MODELS, array, tensor
from tests.serve.fakes import COST, FakePrepared, Fakes, until

KEY = "affine@1"
LONG_US = 3_600_000_000


def request(value: float, *, rows: int = 1, columns: int = 3, priority: int = 0) -> InferRequest:
    x = tensor("x", np.full((rows, columns), value, np.float32))
    return InferRequest("affine", (x,), (WantedOutput("y", True),), priority=priority, rows=rows)


def result(outputs: object) -> list[float]:
    (y,) = outputs  # type: ignore[misc]
    assert isinstance(y, Tensor)
    return array(y)[:, 0].tolist()  # type: ignore[no-any-return]


def is_value(value: float) -> object:
    return lambda asked: array(asked.inputs[0])[0, 0] == value


class Served:
    """A dispatcher with the model `affine`, and two busy workers at most."""

    def __init__(self, fakes: Fakes, metrics: Metrics, dispatcher: Dispatcher) -> None:
        self.fakes, self.metrics, self.dispatcher = fakes, metrics, dispatcher

    @classmethod
    async def start(cls, *, order: Order = Order.FCFS, hung_s: float = 600.0, **limits: int) -> Served:
        fakes, metrics = Fakes(), Metrics()
        dispatcher = Dispatcher(fakes.pool(), metrics, order, hung_s=hung_s)
        await dispatcher.pool.add(KEY, FakePrepared(MODELS["affine"])).loaded
        dispatcher.add(KEY, Queue(**{"most_waiting": 8, "max_batch": 4, **limits}), batches=True)
        await until(lambda: dispatcher.pool.states()["idle"] == 3)
        return cls(fakes, metrics, dispatcher)

    def ask(self, asked: InferRequest, timeout_us: int | None = None) -> asyncio.Task[object]:
        return asyncio.create_task(self.dispatcher.infer(KEY, asked, timeout_us))  # type: ignore[arg-type]

    async def fill(self) -> list[asyncio.Task[object]]:
        """Both workers that may compute do, and are held there."""
        self.fakes.hold("infer")
        tasks = []
        for value in (101.0, 102.0):
            tasks.append(self.ask(request(value)))
            await until(lambda: len(self.fakes.computing()) == len(tasks))
        return tasks

    async def wait_until_waiting(self, requests: int) -> None:
        await until(lambda: self.dispatcher.waiting().get(KEY) == requests)

    def count(self, name: str) -> int:
        lines = self.metrics.page({}, {})[0].decode().splitlines()
        return next((int(float(line.split()[1])) for line in lines if line.startswith(f'{name}{{model="affine"')), 0)

    @property
    def sizes(self) -> list[int]:
        return [size for _, _, size, _ in self.fakes.batches]


@pytest.fixture
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    served = await Served.start(**getattr(request, "param", {}))
    yield served
    await served.dispatcher.close()
    await until(lambda: len(asyncio.all_tasks()) <= 2)  # the test's own ones


def limited(name: str, **limits: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("served", [limits], ids=[name], indirect=True)


@pytest.fixture
def unleavable(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """Computations that are not left are given up after a moment."""
    monkeypatch.setattr(dispatcher, "LEAVE_US", 1_000)
    served.fakes.can_be_left = False
    return served


async def test_an_answer(served: Served) -> None:
    assert result(await served.ask(request(3, rows=2))) == [7, 7]
    assert served.count("carpool_batches_total") == 1 and served.count("carpool_batch_rows_total") == 2


async def test_what_waits_is_computed_together(served: Served) -> None:
    busy = await served.fill()
    tasks = [served.ask(request(value)) for value in range(6)] + [served.ask(request(9, columns=2))]
    await served.wait_until_waiting(7)
    served.fakes.let_go("infer")
    assert [result(await task) for task in tasks] == [[2 * value + 1] for value in [*range(6), 9]]
    assert served.sizes == [1, 1, 4, 2, 1], "those of another shape are computed by themselves"
    assert len(await asyncio.gather(*busy)) == 2


async def test_never_more_than_may_compute(served: Served) -> None:
    await served.fill()
    task = served.ask(request(1))
    await served.wait_until_waiting(1)
    assert len(served.fakes.computing()) == 2 and served.dispatcher.pool.states()["idle"] == 1
    served.fakes.let_go("infer")
    await task


@limited("by priority", order=Order.PRIORITY, max_batch=1)
async def test_the_order_by_priority(served: Served) -> None:
    done: list[int] = []
    await served.fill()
    for priority in (0, 3, 1, 2):
        task = served.ask(request(priority, priority=priority))
        task.add_done_callback(lambda _, priority=priority: done.append(priority))
    await served.wait_until_waiting(4)
    served.fakes.let_go("infer")
    await until(lambda: len(done) == 4)
    assert done == [1, 2, 3, 0]


async def test_a_full_queue(served: Served) -> None:
    await served.fill()
    tasks = [served.ask(request(value)) for value in range(8)]
    await served.wait_until_waiting(8)
    with pytest.raises(QueueFull, match="8 requests wait for model 'affine' already") as caught:
        await served.ask(request(9))
    assert caught.value.retry_after_s == 1
    served.fakes.let_go("infer")
    await asyncio.gather(*tasks)


async def test_a_deadline_passes_while_it_waits_and_while_it_is_computed(served: Served) -> None:
    served.fakes.hold("infer")
    tasks = [served.ask(request(value), 20_000) for value in (1, 2, 3)]
    patient = served.ask(request(4), LONG_US)
    for task in tasks:
        with pytest.raises(DeadlineMissed):
            await task
    served.fakes.let_go("infer")
    assert result(await patient) == [9], "the workers are free again"


async def test_what_takes_too_long_is_refused_at_once_until_it_is_long_ago(served: Served) -> None:
    model = served.dispatcher._models[KEY]
    model.computing.add(500_000, now_us() + LONG_US)
    with pytest.raises(DeadlineMissed, match="computing takes 500000 us"):
        await served.ask(request(1), 400_000)
    assert served.fakes.batches == []
    model.computing = Recent()
    assert result(await served.ask(request(1), LONG_US)) == [3]
    assert model.queue.compute_us == COST.compute_us and 0 < model.queue.answer_us < LONG_US


async def test_what_had_to_wait_for_its_turn_once_is_not_refused_the_next_time(served: Served) -> None:
    served.dispatcher._models[KEY].answering.add(2 * LONG_US, now_us() + LONG_US)
    assert result(await served.ask(request(1), LONG_US)) == [3]


async def test_workers_hear_of_the_first_deadline(served: Served) -> None:
    await served.fill()
    tasks = [served.ask(request(1), timeout_us) for timeout_us in (None, 2 * LONG_US, LONG_US)]
    before = now_us()
    await served.wait_until_waiting(3)
    served.fakes.let_go("infer")
    await asyncio.gather(*tasks)
    deadline = served.fakes.batches[-1][3]
    assert deadline is not None and abs(deadline - before - LONG_US) < LONG_US // 2


@limited("long delay", max_delay_us=LONG_US)
async def test_a_maximum_delay_makes_batches(served: Served) -> None:
    tasks = [served.ask(request(value)) for value in range(3)]
    await served.wait_until_waiting(3)
    assert not served.fakes.batches
    assert result(await served.ask(request(3))) == [7], "the batch is full"
    await asyncio.gather(*tasks)
    assert served.sizes == [4]


@limited("short delay", max_delay_us=5_000)
async def test_after_the_maximum_delay_a_request_is_computed_alone(served: Served) -> None:
    assert result(await served.ask(request(1))) == [3]


async def test_the_request_of_a_client_that_has_gone_is_not_computed(served: Served) -> None:
    await served.fill()
    gone, stays = served.ask(request(1)), served.ask(request(2))
    await served.wait_until_waiting(2)
    gone.cancel()
    await served.wait_until_waiting(1)
    served.fakes.let_go("infer")
    await stays
    assert served.sizes == [1, 1, 1]


async def test_a_computation_for_which_nobody_waits_is_left(served: Served) -> None:
    gone, stays = await served.fill()
    next_one = served.ask(request(1))
    await served.wait_until_waiting(1)
    first = served.fakes.computing()[0]
    gone.cancel()
    await until(lambda: not served.dispatcher.waiting()[KEY])
    assert first in served.fakes.computing(), "that worker computes the next one"
    served.fakes.let_go("infer")
    assert result(await next_one) == [3] and result(await stays) == [205]
    assert len(served.fakes.handles) == 3 and served.count("carpool_retries_total") == 0


async def test_a_computation_past_its_deadline_is_left(served: Served) -> None:
    served.fakes.hold("infer")
    with pytest.raises(DeadlineMissed):
        await served.ask(request(1), 20_000)
    await until(lambda: not served.fakes.computing())
    assert served.dispatcher.pool.states()["idle"] == 3


async def test_a_model_that_cannot_be_left_ends_with_its_worker_once_others_wait(unleavable: Served) -> None:
    served = unleavable
    tasks = await served.fill()
    handles = list(served.fakes.computing())
    for task in tasks:
        task.cancel()
    await until(lambda: all(handle.leaving.is_set() for handle in handles))
    assert not any(handle.killed for handle in handles), "nobody waits"
    served.fakes.let_go("infer")
    next_one = served.ask(request(1))
    assert result(await next_one) == [3]


async def test_nobody_waits_long_for_a_computation_that_is_not_left(unleavable: Served) -> None:
    served = unleavable
    first, second = await served.fill()
    handle = served.fakes.computing()[0]
    next_one = served.ask(request(1))
    await served.wait_until_waiting(1)
    first.cancel()
    await until(lambda: handle.killed and handle.closed)
    await until(lambda: not served.dispatcher.waiting()[KEY])
    served.fakes.let_go("infer")
    assert result(await next_one) == [3] and result(await second) == [205]
    await until(lambda: len(served.fakes.handles) == 4)


async def test_a_worker_that_waits_for_its_turn_is_not_given_up(unleavable: Served) -> None:
    served = unleavable
    first, second = await served.fill()
    handle = served.fakes.computing()[0]
    handle.has_begun = False
    next_one = served.ask(request(1))
    first.cancel()
    await handle.leaving.wait()
    (computation, _) = served.dispatcher._computations
    left_us = computation.left_us
    await until(lambda: computation.left_us != left_us)
    assert not handle.killed
    handle.has_begun = True
    await until(lambda: handle.killed)
    served.fakes.let_go("infer")
    assert result(await next_one) == [3] and result(await second) == [205]


@pytest.mark.parametrize("timeouts_us", [(LONG_US, LONG_US // 2), (None, LONG_US), (None, None)])
async def test_a_model_with_less_time_does_not_wait_for_one_with_more(
    served: Served, timeouts_us: tuple[int | None, int | None]
) -> None:
    """It is asked again until the other one has its turn; without deadlines what usually takes long makes way."""
    other = "pair@2"
    await served.dispatcher.pool.add(other, FakePrepared(MODELS["pair"])).loaded
    served.dispatcher.add(other, Queue(most_waiting=8), batches=False)
    served.fakes.hold("infer")
    served.dispatcher._models[other].computing.add(1, now_us())
    slow = served.ask(request(1), timeouts_us[0])
    await until(served.fakes.computing)
    (first,) = served.fakes.computing()
    for handle in served.fakes.handles:
        handle.has_begun = handle is first
    asked = replace(request(2), model="pair")
    hurried = asyncio.create_task(served.dispatcher.infer(other, asked, timeouts_us[1]))
    await until(lambda: first.made_way == 2)
    second = next(handle for handle in served.fakes.computing() if handle is not first)
    assert not second.made_way
    hurried.cancel()
    served.fakes.let_go("infer")
    assert result(await slow) == [3]


async def test_the_rest_of_a_batch_does_not_wait_for_what_a_client_has_left(served: Served) -> None:
    first, second = await served.fill()
    gone, stays = served.ask(request(1)), served.ask(request(2))
    await served.wait_until_waiting(2)
    worker = served.fakes.computing()[0]
    worker.finish.set()
    await until(lambda: served.sizes == [1, 1, 2])
    gone.cancel()
    await until(lambda: served.sizes == [1, 1, 2, 1])
    served.fakes.let_go("infer")
    assert result(await stays) == [5]
    assert served.count("carpool_retries_total") == 1 and len(served.fakes.handles) == 3
    await asyncio.gather(first, second)


async def test_a_stopped_worker_stops_nobody_else(served: Served) -> None:
    """The request is tried once more; health says what is missing until another worker is there."""
    first, _ = await served.fill()
    served.fakes.slow = True
    handle = served.fakes.computing()[0]
    handle.stopped = True
    await until(lambda: handle.killed)
    assert "its process is stopped" in served.dispatcher.pool.degraded
    served.fakes.let_go("infer")
    assert result(await first) == [203]
    served.fakes.connect()
    await until(lambda: served.dispatcher.pool.states()["idle"] == 3)
    assert served.dispatcher.pool.degraded == ""


async def test_a_worker_that_dies_is_no_harm(served: Served) -> None:
    first, _ = await served.fill()
    tasks = [served.ask(request(value)) for value in range(3)]
    await served.wait_until_waiting(3)
    served.fakes.computing()[0].die()
    await until(lambda: len(served.fakes.handles) == 4)
    served.fakes.let_go("infer")
    assert result(await first) == [203]
    assert [result(await task) for task in tasks] == [[1], [3], [5]]
    assert served.count("carpool_retries_total") == 1


async def between_others(served: Served) -> object:
    """The second of three requests that are computed together; the others are answered."""
    await served.fill()
    tasks = [served.ask(request(value)) for value in range(3)]
    await served.wait_until_waiting(3)
    served.fakes.let_go("infer")
    assert result(await tasks[0]) == [1] and result(await tasks[2]) == [5]
    return await tasks[1]


async def test_a_request_that_kills_workers_takes_no_others_along(served: Served) -> None:
    served.fakes.deadly = is_value(1)  # type: ignore[assignment]
    with pytest.raises(WorkerLost, match="so did the one that tried again"):
        await between_others(served)
    assert sorted(served.sizes) == [1, 1, 1, 1, 1, 3] and served.count("carpool_retries_total") == 3
    assert len({worker for worker, *_ in served.fakes.batches}) > 2
    await until(lambda: served.dispatcher.pool.states()["idle"] == 3)


async def test_a_request_that_the_model_cannot_compute_takes_no_others_along(served: Served) -> None:
    served.fakes.wrong = is_value(1)  # type: ignore[assignment]
    with pytest.raises(ModelFailed):
        await between_others(served)
    with pytest.raises(ModelFailed):
        await served.ask(request(1))
    assert len(served.fakes.handles) == 3 and served.count("carpool_retries_total") == 3


async def test_other_errors_are_not_tried_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise ModelTooLarge("it has 9 GiB, the device 8 GiB")

    for handle in served.fakes.handles:
        monkeypatch.setattr(handle, "infer", refuse)
    with pytest.raises(ModelTooLarge):
        await served.ask(request(1))
    assert len(served.fakes.alive()) == 3


async def test_a_mistake_is_no_end(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wrong(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(served.fakes.handles[0], "infer", wrong)
    with pytest.raises(ValueError, match="zip"):
        await served.ask(request(1))
    assert result(await served.ask(request(1))) == [3]
    await until(lambda: len(served.fakes.alive()) == 3)


@limited("hung soon", hung_s=0.05)
async def test_a_worker_that_never_answers_is_replaced(served: Served) -> None:
    served.fakes.hold("infer")
    with pytest.raises(WorkerLost, match=r"has not answered for 0\.05 s"):
        await served.ask(request(1))
    served.fakes.let_go("infer")
    served.dispatcher._hung_s = 600.0
    assert result(await served.ask(request(1))) == [3]
    await until(lambda: served.dispatcher.pool.states()["idle"] == 3)
    assert len(served.fakes.handles) == 4


async def test_without_workers_requests_do_not_wait_for_ever(served: Served) -> None:
    await served.fill()
    waiting = served.ask(request(1))
    await served.wait_until_waiting(1)
    served.fakes.unstartable = 10**9
    for handle in served.fakes.handles:
        handle.die()
    for task in (waiting, served.ask(request(2))):
        with pytest.raises(ServeError, match=r"no worker can be started: .*(no daemon|ended before)"):
            await task
    with pytest.raises(ModelUnavailable):
        await served.ask(request(2))
    served.fakes.unstartable = 0
    served.fakes.let_go("infer")
    await until(lambda: served.dispatcher.pool.states()["idle"] == 3)
    assert result(await served.ask(request(3))) == [7]


async def test_a_model_that_is_removed_answers_what_it_has_begun(served: Served) -> None:
    computing = await served.fill()
    waiting = served.ask(request(1))
    await served.wait_until_waiting(1)
    unused = asyncio.create_task(served.dispatcher.unused(KEY))
    await asyncio.sleep(0)
    assert not unused.done()
    served.dispatcher.remove(KEY)
    served.dispatcher.remove(KEY)
    with pytest.raises(ModelUnavailable, match="it has been removed"):
        await waiting
    with pytest.raises(ModelUnavailable):
        await served.ask(request(1))
    served.fakes.let_go("infer")
    assert [result(await task) for task in computing] == [[203], [205]]
    await unused
    await served.dispatcher.unused(KEY)


async def test_a_model_that_is_removed_refuses_what_would_be_tried_again(served: Served) -> None:
    first, _ = await served.fill()
    served.fakes.hold("load")
    served.dispatcher.pool.add("pair@2", FakePrepared(MODELS["pair"]))
    await until(lambda: "load" in served.fakes.doing.values())
    served.fakes.computing()[0].die()
    await until(lambda: served.count("carpool_retries_total"))
    served.dispatcher.remove(KEY)
    with pytest.raises(ModelUnavailable, match="it has been removed"):
        await first


async def test_closing_refuses_what_is_not_answered(served: Served) -> None:
    tasks = [*await served.fill(), served.ask(request(1))]
    await served.wait_until_waiting(1)
    await served.dispatcher.close()
    for task in tasks:
        with pytest.raises(ModelUnavailable, match="the server is stopping"):
            await task


@limited("one by one", max_batch=1)
async def test_a_model_without_a_batch_dimension_is_asked_one_by_one(served: Served) -> None:
    await served.fill()
    tasks = [served.ask(replace(request(value), rows=1)) for value in (1, 2)]
    await served.wait_until_waiting(2)
    served.fakes.let_go("infer")
    await asyncio.gather(*tasks)
    assert served.sizes == [1] * 4
