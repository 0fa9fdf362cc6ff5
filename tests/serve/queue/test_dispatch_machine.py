"""Whatever happens to models, workers and requests: one worker stays free, and everything is answered, correctly."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from carpool.serve.metrics import Metrics
from carpool.serve.oip.errors import ModelUnavailable, WorkerLost
from carpool.serve.pool.pool import Hosting
from carpool.serve.queue.batching import Queue
from carpool.serve.queue.dispatcher import Dispatcher
from tests.serve.backend import MODELS
from tests.serve.fakes import FakePrepared, Fakes
from tests.serve.queue.test_dispatcher import request, result

STANDBY = 2
#: Passes of the event loop in which everything that can happen does, as long as nobody lets go of what is held.
PASSES = 60


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.fakes = Fakes()
        self.fakes.hold("infer")
        self.run(self.start())
        self.hosted: dict[str, Hosting] = {}
        self.known: set[str] = set()
        self.served: set[str] = set()
        self.asked: list[tuple[float, asyncio.Task[Any]]] = []
        self.killed = False
        self.removed = False

    def run(self, work: Any) -> None:
        self.loop.run_until_complete(work)

    async def start(self) -> None:
        self.dispatcher = Dispatcher(self.fakes.pool(STANDBY), Metrics())
        await settle()

    @rule()
    def add_a_model(self) -> None:
        async def work() -> None:
            key = f"affine@{len(self.hosted)}"
            self.hosted[key] = self.dispatcher.pool.add(key, FakePrepared(MODELS["affine"]))
            await settle()

        self.run(work())

    @precondition(lambda self: self.served)
    @rule(data=st.data(), rows=st.integers(1, 3), number=st.integers(1, 4))
    def ask(self, data: st.DataObject, rows: int, number: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.served)))

        async def work() -> None:
            for _ in range(number):
                value = float(len(self.asked))
                answer = asyncio.create_task(self.dispatcher.infer(key, request(value, rows=rows), None))
                self.asked.append((value, answer))
            await settle()

        self.run(work())

    @precondition(lambda self: self.fakes.computing())
    @rule(data=st.data())
    def a_computation_ends(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.fakes.computing(), key=lambda each: each.number)))
        handle.finish.set()
        self.run(settle())

    @rule(data=st.data(), unstartable=st.integers(0, 2))
    def a_worker_dies(self, data: st.DataObject, unstartable: int) -> None:
        alive = self.fakes.alive()
        if alive:
            self.killed = True
            self.fakes.unstartable = unstartable
            data.draw(st.sampled_from(alive)).die()
            self.run(settle())

    @precondition(lambda self: self.served)
    @rule(data=st.data())
    def a_model_goes(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.served)))
        self.removed = True
        self.served.discard(key)

        async def work() -> None:
            self.dispatcher.remove(key)
            self.dispatcher.pool.remove(key)
            await settle()

        self.run(work())

    @precondition(lambda self: any(not task.done() for _, task in self.asked))
    @rule(data=st.data())
    def a_client_goes(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from([task for _, task in self.asked if not task.done()]))
        task.cancel()
        self.run(settle())

    @invariant()
    def loaded_models_are_asked(self) -> None:
        for key, hosting in self.hosted.items():
            if hosting.loaded.done() and key not in self.known:
                self.dispatcher.add(key, Queue(most_waiting=100, max_batch=4), batches=True)
                self.known.add(key)
                self.served.add(key)

    @invariant()
    def one_worker_is_always_free(self) -> None:
        assert len(self.fakes.computing()) <= STANDBY
        assert sum(self.dispatcher.pool.states().values()) == STANDBY + 1

    @invariant()
    def nothing_waits_without_a_reason(self) -> None:
        waiting = sum(self.dispatcher.waiting().values())
        assert not waiting or not self.dispatcher.pool.has_idle

    @invariant()
    def answers_are_right(self) -> None:
        for value, task in self.asked:
            if task.done() and not task.cancelled():
                self.check(value, task)

    def check(self, value: float, task: asyncio.Task[Any]) -> None:
        match task.exception():
            case None:
                assert set(result(task.result())) == {2 * value + 1}
            case ModelUnavailable():
                assert self.removed or self.killed
            case WorkerLost():
                assert self.killed
            case error:
                raise AssertionError(f"{error!r}")

    def teardown(self) -> None:
        self.fakes.let_go("infer")
        self.run(settle())
        assert all(task.done() for _, task in self.asked), "everything is answered in the end"
        self.run(self.dispatcher.close())
        assert not self.fakes.doing and not asyncio.all_tasks(self.loop)
        self.loop.close()


async def settle() -> None:
    for _ in range(PASSES):
        await asyncio.sleep(0)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=40, stateful_step_count=25)
