"""Models come, are prepared, asked, replaced, and go; with a registry, preparation and workers that only pretend."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carpool.protocol.models import ModelFigures
from carpool.serve.front import Choices, Front
from carpool.serve.metrics import Metrics, RecentFigures
from carpool.serve.model.image_store import ImageStore
from carpool.serve.oip.errors import (
    CodeChanged,
    DaemonAway,
    DeadlineMissed,
    ModelFailed,
    ModelUnavailable,
    UnknownModel,
)
from carpool.serve.plan.manifest import SourceFile
from carpool.serve.pool.launcher import Environment
from tests.serve.fakes import SIZE, FakePreparing, FakeRegistry, Fakes, until
from tests.serve.queue.test_dispatcher import LONG_US, request, result


class Fronted:
    def __init__(self, choices: Choices, budget: int = 4 * SIZE) -> None:
        self.fakes, self.registry, self.preparing = Fakes(), FakeRegistry(), FakePreparing()
        self.store, self.metrics = ImageStore(budget), Metrics()
        self.environments: list[Environment] = []
        self.announced: list[tuple[str, str | None]] = []
        self.watching: asyncio.Task[None] | None = None
        self.front = Front(
            self.registry, self.preparing, self.pool, self.store, self.metrics, choices,
            lambda name, reason: self.announced.append((name, reason)),
        )  # fmt: skip

    def pool(self, environment: Environment) -> Any:
        self.environments.append(environment)
        return self.fakes.pool(environment=environment)

    def update(self) -> None:
        self.front.update(list(self.registry.infos.values()))

    def add(self, name: str, **changes: Any) -> None:
        self.registry.add(name, **changes)
        self.update()

    def remove(self, name: str) -> None:
        del self.registry.infos[name]
        self.update()

    async def until_ready(self, *names: str) -> None:
        await until(lambda: set(self.front.models()) == set(names) and not self.front.unavailable())

    async def ask(self, value: float, timeout_us: int | None = None) -> list[float]:
        return result(await self.front.infer(replace(request(value), timeout_us=timeout_us)))

    def watch(self, poll_s: float = 0.001) -> asyncio.Task[None]:
        """As the server does, until the end."""
        self.watching = asyncio.create_task(self.front.watch(poll_s=poll_s))
        return self.watching

    async def polled(self, times: int = 2) -> None:
        """The registry has been asked so often, and no call for it has begun before."""
        before = self.registry.asked
        await until(lambda: self.registry.asked >= before + times)

    async def close(self) -> None:
        if self.watching is not None:
            self.watching.cancel()
        await self.front.close()
        self.store.__exit__(None, None, None)
        assert all(handle.closed for handle in self.fakes.handles)
        for image in self.preparing.images:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(image)


@pytest.fixture
async def one(request: pytest.FixtureRequest) -> AsyncIterator[Fronted]:
    one = Fronted(getattr(request, "param", Choices()))
    yield one
    await one.close()


#: One that waits for the daemon for a moment only.
impatient = pytest.mark.parametrize("one", [Choices(away_s=0.01)], ids=["impatient"], indirect=True)


async def test_a_model_comes_and_goes(one: Fronted) -> None:
    assert one.front.troubles() == ["the registered models are not known yet"]
    one.add("affine")
    assert one.front.unavailable() == {"affine": "it has not been prepared yet"} and not one.front.models()
    assert one.front.troubles() == ["no model can be asked yet", "model affine: it has not been prepared yet"]
    await one.until_ready("affine")
    assert await one.ask(3) == [7] and one.announced == [("affine", None)]
    assert one.front.waiting() == {"affine": 0} and one.store.sizes() == {"affine": SIZE}
    await until(lambda: one.front.workers()["idle"] == 3)
    one.remove("affine")
    assert not one.front.models() and not one.front.unavailable()
    with pytest.raises(UnknownModel):
        await one.ask(3)
    await until(lambda: not one.store.sizes())
    assert not one.fakes.alive() and not one.front.workers()


@pytest.mark.parametrize("gpus", [False, True])
async def test_what_workers_and_preparation_are_given(one: Fronted, gpus: bool) -> None:
    one.registry.gpus = gpus
    one.front._choices = Choices(profiles=Path("/cache"))
    one.add("affine", factory="shop:affine", weights="/w.safetensors", max_batch=4, priority=7)
    await one.until_ready("affine")
    ((name, spec, kept),) = one.preparing.begun
    assert (name, spec.factory, spec.weights, spec.max_batch) == ("affine", "shop:affine", "/w.safetensors", 4)
    assert kept == Path("/cache/affine.json")
    assert one.preparing.on_gpu == [gpus]
    assert one.environments == [Environment("/usr/bin/python3", "/shop", 7, (("PATH", "/usr/bin"),))]


async def test_models_of_one_environment_share_workers(one: Fronted) -> None:
    """What differs between two shells (`SHLVL` here) is no other environment."""
    for name in ("affine", "pair"):
        one.add(name)
    one.add("echo-FP32", cwd="/other")
    await one.until_ready("affine", "pair", "echo-FP32")
    assert [environment.cwd for environment in one.environments] == ["/shop", "/other"]
    one.remove("affine")
    await until(lambda: "affine" not in one.store.sizes())
    assert len(one.fakes.alive()) == 6, "the other model still needs them"
    one.remove("pair")
    await until(lambda: len(one.fakes.alive()) == 3)


async def test_one_model_is_prepared_at_a_time(one: Fronted) -> None:
    one.preparing.gate = asyncio.Event()
    for name in ("affine", "pair"):
        one.add(name)
    await until(lambda: one.preparing.running)
    assert one.front.unavailable() == {"affine": "it is being prepared", "pair": "it has not been prepared yet"}
    one.preparing.gate.set()
    await one.until_ready("affine", "pair")


async def test_a_model_that_cannot_be_prepared_is_no_end(one: Fronted) -> None:
    one.preparing.failing["pair"] = "its factory raised ValueError: no"
    one.add("pair")
    await until(lambda: one.announced)
    assert one.front.troubles() == ["no model can be asked yet", "model pair: its factory raised ValueError: no"]
    one.add("affine")
    await until(lambda: one.front.models())
    assert not one.front.troubles(), "one that can be asked is enough"
    assert one.front.unavailable() == {"pair": "its factory raised ValueError: no"}
    assert one.announced == [("pair", "its factory raised ValueError: no"), ("affine", None)]
    one.update()
    assert len(one.preparing.begun) == 2, "it is not tried again by itself"
    one.preparing.failing.clear()
    one.add("pair", factory="shop:mended")
    await one.until_ready("affine", "pair")


async def test_a_mistake_of_ours_is_no_end(one: Fronted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one.store, "put", lambda *_: 1 // 0)
    one.add("affine")
    await until(lambda: one.announced)
    assert "an internal error: ZeroDivisionError" in one.front.unavailable()["affine"]


async def test_a_model_that_workers_refuse_says_why(one: Fronted) -> None:
    one.fakes.refused["affine"] = ModelFailed("the structure has changed")
    one.add("affine")
    await until(lambda: one.front.unavailable().get("affine") == "the structure has changed")
    await until(lambda: one.announced)
    assert one.announced == [("affine", "the structure has changed")]
    assert not one.fakes.alive() and not one.store.sizes()


async def test_a_model_that_a_later_worker_refuses_says_why(one: Fronted) -> None:
    for name in ("affine", "pair"):
        one.add(name)
    await one.until_ready("affine", "pair")
    one.fakes.refused["affine"] = ModelFailed("the structure has changed")
    one.fakes.handles[0].die()
    await until(lambda: one.front.unavailable() == {"affine": "the structure has changed"})
    assert set(one.front.models()) == {"pair"}


async def test_a_model_that_is_removed_answers_what_waits(one: Fronted) -> None:
    one.add("affine")
    await one.until_ready("affine")
    one.fakes.hold("infer")
    asked = []
    for value in range(3):
        asked.append(asyncio.create_task(one.ask(value)))
        await until(lambda: len(one.fakes.computing()) == min(2, len(asked)))
    await until(lambda: one.front.waiting() == {"affine": 1})
    one.remove("affine")
    for _ in range(10):
        await asyncio.sleep(0)
    one.fakes.let_go("infer")
    assert [await each for each in asked] == [[1], [3], [5]]


async def test_a_model_is_asked_in_its_old_form_until_the_new_one_is_there(one: Fronted) -> None:
    one.add("affine")
    await one.until_ready("affine")
    one.fakes.hold("infer")
    asked = asyncio.create_task(one.ask(1))
    await until(one.fakes.computing)
    one.preparing.gate = asyncio.Event()
    one.add("affine", factory="shop:other")
    await until(lambda: len(one.preparing.begun) == 2)
    assert "affine" in one.front.models() and not one.front.unavailable()
    one.preparing.gate.set()
    await until(lambda: {key for handle in one.fakes.handles for key in handle.models} == {"affine@1", "affine@2"})
    one.fakes.let_go("infer")
    assert await asked == [3]
    await until(lambda: all(set(handle.models) == {"affine@2"} for handle in one.fakes.alive()))
    assert await one.ask(2) == [5]
    assert len(one.fakes.handles) == 6, "the old ones have imported the old code, and were replaced"
    assert one.announced == [("affine", None)] * 2 and one.store.sizes() == {"affine": SIZE}


def code(text: str) -> tuple[SourceFile, ...]:
    return (SourceFile("/shop/model.py", text),)


async def test_a_model_whose_code_has_changed_gets_workers_of_its_own(one: Fronted) -> None:
    """The other one goes on with those that have imported the earlier code; a third one joins the newer."""
    one.preparing.code = code("old")
    one.add("affine")
    one.add("pair")
    await one.until_ready("affine", "pair")
    one.preparing.code = code("new")
    one.add("affine", factory="shop:better")
    await until(lambda: one.announced == [("affine", None), ("pair", None), ("affine", None)])
    one.add("fails")
    await one.until_ready("affine", "pair", "fails")
    assert len(one.environments) == 2 and one.environments[0] == one.environments[1]
    await until(lambda: len(one.fakes.alive()) == 6)
    await until(lambda: sorted({tuple(sorted(handle.models)) for handle in one.fakes.alive()}) == [
        ("affine@3", "fails@4"), ("pair@2",),
    ])  # fmt: skip
    assert await one.ask(3) == [7]


async def test_a_model_is_prepared_anew_when_workers_find_other_code(one: Fronted) -> None:
    """A worker that takes the place of one that has died imports what is there by then."""
    one.preparing.code = code("old")
    one.add("affine")
    await one.until_ready("affine")
    await until(lambda: one.front.workers()["idle"] == 3)
    one.fakes.refused["affine"] = CodeChanged("/shop/model.py has changed")
    one.preparing.code, one.preparing.gate = code("new"), asyncio.Event()
    one.fakes.alive()[0].die()
    await until(lambda: len(one.preparing.begun) == 2)
    assert await one.ask(3) == [7], "the others of the old ones answer meanwhile"
    del one.fakes.refused["affine"]
    one.preparing.gate.set()
    await until(lambda: one.announced == [("affine", None)] * 2)
    assert len(one.environments) == 2 and await one.ask(3) == [7]


async def test_a_new_form_that_cannot_be_prepared_takes_the_old_one_along(one: Fronted) -> None:
    one.add("affine")
    await one.until_ready("affine")
    one.preparing.failing["affine"] = "no such file"
    one.add("affine", weights="/gone.safetensors")
    await until(lambda: one.front.unavailable() == {"affine": "no such file"})
    await until(lambda: not one.store.sizes())
    assert not one.fakes.alive()


async def test_replaced_and_removed_while_it_is_prepared(one: Fronted) -> None:
    one.preparing.gate = asyncio.Event()
    one.add("affine", factory="a:a")
    await until(lambda: len(one.preparing.begun) == 1)
    one.add("affine", factory="b:b")
    await until(lambda: len(one.preparing.begun) == 2)
    one.remove("affine")
    await until(lambda: not one.preparing.running)
    one.preparing.gate.set()
    one.add("affine", factory="c:c")
    await one.until_ready("affine")
    assert [spec.factory for _, spec, _ in one.preparing.begun] == ["a:a", "b:b", "c:c"]
    assert one.announced == [("affine", None)]


async def test_a_model_waits_until_there_is_room_in_the_store(one: Fronted) -> None:
    one.preparing.sizes = {"affine": 3 * SIZE, "pair": 2 * SIZE}
    one.add("affine")
    await one.until_ready("affine")
    one.add("pair")
    await until(lambda: one.announced[1:])
    reason = one.front.unavailable()["pair"]
    assert "model pair has 8 KiB of weights; the store's budget is 16 KiB" in reason
    one.remove("affine")
    await one.until_ready("pair")


@pytest.mark.parametrize("one", [Choices(names=["pair"])], ids=["of pair"], indirect=True)
async def test_only_the_models_that_were_asked_for(one: Fronted) -> None:
    one.add("affine")
    one.add("pair")
    await one.until_ready("pair")


async def test_the_deadline_of_a_model_counts_where_a_request_has_none(one: Fronted) -> None:
    one.add("affine", deadline_us=LONG_US)
    await one.until_ready("affine")
    await one.ask(1)
    assert one.fakes.batches[-1][3] is not None
    one.fakes.hold("infer")
    with pytest.raises(DeadlineMissed):
        await one.ask(1, 1_000)


async def test_without_workers_the_reason_is_known(one: Fronted) -> None:
    one.fakes.unstartable = 10**9
    one.add("affine")
    await until(lambda: one.front.troubles() == ["no daemon is running"])
    one.fakes.unstartable = 0
    await one.until_ready("affine")
    assert not one.front.troubles()


async def test_while_the_daemon_is_away_everything_goes_on(one: Fronted, caplog: pytest.LogCaptureFixture) -> None:
    one.registry.add("affine")
    one.watch()
    await one.until_ready("affine")
    one.registry.away = True
    del one.registry.infos["affine"]
    await one.polled(4)
    assert await one.ask(1) == [3]
    assert [record.message for record in caplog.records] == [
        "models that come and go are not noticed: no daemon is running"
    ]
    one.registry.away = False
    await until(lambda: not one.front.models())


async def away(one: Fronted) -> None:
    """The model `affine` is ready and computes nothing, and the front has seen that the daemon is away."""
    one.registry.add("affine")
    one.watch()
    await one.until_ready("affine")
    one.fakes.hold("infer")
    one.registry.away = True
    await one.polled()


async def test_a_request_is_answered_after_the_restart(one: Fronted) -> None:
    await away(one)
    asked = asyncio.create_task(one.ask(1))
    await until(one.fakes.computing)
    one.registry.away = False
    await one.polled()
    one.fakes.let_go("infer")
    assert await asked == [3]


@impatient
@pytest.mark.parametrize("timeout_us", [None, 1_000])
async def test_a_request_does_not_wait_for_the_daemon_for_ever(one: Fronted, timeout_us: int | None) -> None:
    await away(one)
    with pytest.raises(DaemonAway, match=r"Carpool's daemon .* carpool up") as caught:
        await one.ask(1, timeout_us)
    assert caught.value.retry_after_s == 5


@impatient
async def test_a_request_that_came_before_the_daemon_went_away(one: Fronted) -> None:
    """It waits as long as the others, from then on; one with a deadline waits until that."""
    one.add("affine")
    await one.until_ready("affine")
    one.fakes.hold("infer")
    patient, other = (asyncio.create_task(one.ask(1, timeout_us)) for timeout_us in (LONG_US, None))
    await until(one.fakes.computing)
    one.registry.away = True
    one.watch()
    with pytest.raises(DaemonAway):
        await other
    one.fakes.let_go("infer")
    assert await patient == [3]


@impatient
async def test_a_daemon_that_refuses_is_not_away(one: Fronted) -> None:
    await away(one)
    one.registry.refuses, one.registry.away = True, False
    await one.polled()
    with pytest.raises(DeadlineMissed):
        await one.ask(1, 1_000)


def said(one: Fronted) -> dict[str, str]:
    """The last report, in words."""
    return {name: f"{each.state} {each.reason}".strip() for name, each in one.registry.reports[-1].items()}


async def test_the_daemon_hears_of_every_state(one: Fronted) -> None:
    """At once, and not only when the registry is asked the next time."""
    one.preparing.gate = asyncio.Event()
    one.preparing.failing["pair"] = "its factory raised ValueError: no"
    for name in ("affine", "pair"):
        one.registry.add(name)
    one.watch(poll_s=3600)
    await until(lambda: one.registry.reports and said(one) == {"affine": "preparing", "pair": "preparing"})
    one.preparing.gate.set()
    broken = "unavailable its factory raised ValueError: no"
    await until(lambda: said(one) == {"affine": "ready", "pair": broken})


async def test_reports_follow_what_is_registered(one: Fronted) -> None:
    one.registry.add("affine")
    one.watch()
    await until(lambda: one.registry.reports and said(one) == {"affine": "ready"})
    one.preparing.gate = asyncio.Event()
    one.registry.add("affine", factory="shop:other")
    await until(lambda: one.preparing.running)
    assert one.front.states()["affine"].state == "ready", "its old form answers"
    one.preparing.gate.set()
    del one.registry.infos["affine"]
    await until(lambda: said(one) == {})


async def test_a_model_whose_workers_cannot_be_started_is_unavailable(one: Fronted) -> None:
    one.fakes.unstartable = 10**9
    one.registry.add("affine")
    one.watch()
    await until(lambda: one.registry.reports and said(one) == {"affine": "unavailable no daemon is running"})
    one.fakes.unstartable = 0
    await until(lambda: said(one) == {"affine": "ready"})


async def test_a_state_that_was_reported_is_no_new_registration(one: Fronted) -> None:
    one.add("affine")
    await one.until_ready("affine")
    one.registry.infos["affine"] = msgspec.structs.replace(one.registry.infos["affine"], state="ready", reason="r")
    one.update()
    await one.until_ready("affine")
    assert len(one.preparing.begun) == 1


async def test_a_daemon_that_knows_no_reports_is_served_as_well(one: Fronted) -> None:
    one.registry.deaf = True
    one.registry.add("affine")
    watching = one.watch()
    await one.until_ready("affine")
    await one.polled()
    assert await one.ask(1) == [3] and not watching.done()


async def test_what_was_answered_of_late_is_reported(one: Fronted) -> None:
    one.metrics.recent = RecentFigures(lambda: 0.0)  # no time passes
    one.registry.add("affine")
    one.watch()
    await one.until_ready("affine")
    assert await one.ask(1) == [3]
    one.metrics.answered("affine", 0.005)  # as the endpoint says
    await until(lambda: figures(one).p50_us == 5_000)
    assert one.registry.reports[-1]["affine"].weights_key == "00000000000000ff"
    assert figures(one).requests_per_s == 1 and (figures(one).waiting, figures(one).missed) == (0, 0)


def figures(one: Fronted) -> ModelFigures:
    found = one.registry.reports[-1]["affine"].figures if one.registry.reports else None
    return found if isinstance(found, ModelFigures) else ModelFigures()


async def test_an_environment_that_cannot_be_read_is_asked_for_again(one: Fronted) -> None:
    one.registry.away = True
    one.add("affine")
    await until(lambda: not one.front.unavailable())
    one.registry.away = False
    one.update()
    await one.until_ready("affine")


async def test_closing_refuses_what_is_not_answered() -> None:
    one = Fronted(Choices())
    one.preparing.gate = asyncio.Event()
    one.preparing.gate.set()
    one.add("affine")
    await one.until_ready("affine")
    one.preparing.gate.clear()
    one.fakes.hold("infer")
    asked = asyncio.create_task(one.ask(1))
    await until(one.fakes.computing)
    one.add("pair")
    await until(lambda: one.preparing.running)
    await one.close()
    with pytest.raises(ModelUnavailable):
        await asked
    await until(lambda: len(asyncio.all_tasks()) == 1)
