"""Workers of one environment: started, given their models, replaced; with workers that only pretend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from carpool.serve.oip.errors import CodeChanged, ModelFailed
from carpool.serve.pool.pool import Pool, RestartPauses, WorkerState
from tests.serve.backend import MODELS
from tests.serve.fakes import ENVIRONMENT, FakePrepared, Fakes, until

AFFINE, PAIR = FakePrepared(MODELS["affine"]), FakePrepared(MODELS["pair"])


@pytest.fixture
def fakes() -> Fakes:
    return Fakes()


@pytest.fixture
async def pool(fakes: Fakes) -> AsyncIterator[Pool]:
    pool = fakes.pool()
    yield pool
    await pool.close()
    assert all(handle.closed for handle in fakes.handles) and all(job.cancelled for job in fakes.jobs)


def states(pool: Pool) -> dict[str, int]:
    return {state: number for state, number in pool.states().items() if number}


async def ready(pool: Pool, workers: int = 3) -> None:
    await until(lambda: pool.states()[WorkerState.IDLE] == workers)


async def loaded(pool: Pool, workers: int = 3) -> None:
    """All workers have the model `affine`, and are idle."""
    await pool.add("affine@1", AFFINE).loaded
    await ready(pool, workers)


async def test_one_more_worker_than_compute_at_once(pool: Pool, fakes: Fakes) -> None:
    assert states(pool) == {"starting": 3} and not pool.has_idle
    hosting = pool.add("affine@1", AFFINE)
    await hosting.loaded
    await ready(pool)
    assert [set(handle.models) for handle in fakes.handles] == [{"affine@1"}] * 3
    first, second = pool.take("affine@1"), pool.take("affine@1")
    assert first is not second and not pool.has_idle
    assert states(pool) == {"computing": 2, "idle": 1}
    pool.give_back(first)
    assert pool.has_idle and pool.take("affine@1") is first, "it has this model's memory mapped already"


async def test_workers_are_started_in_their_environment(pool: Pool, fakes: Fakes) -> None:
    await ready(pool)
    argv, cwd, env, priority = fakes.started[0]
    assert (list(argv), cwd, priority) == (["/usr/bin/python3", "-P", "-m", "carpool.serve.worker"], "/shop", 100)
    assert env == {"PATH": "/usr/bin", "FAKE_TOKEN": "token-1"}
    assert ENVIRONMENT.variables == (("PATH", "/usr/bin"),)


async def test_a_new_model_is_loaded_by_one_worker_after_the_other(pool: Pool, fakes: Fakes) -> None:
    await loaded(pool)
    fakes.hold("load")
    hosting = pool.add("pair@2", PAIR)
    await until(lambda: fakes.doing)
    assert states(pool) == {"idle": 2, "loading": 1}
    busy = [pool.take("affine@1"), pool.take("affine@1")]
    pool.give_back(busy.pop())
    busy.append(pool.take("affine@1"))
    assert len(fakes.doing) == 1, "the others go on computing meanwhile"
    fakes.let_go("load")
    await until(lambda: states(pool) == {"idle": 1, "computing": 2})
    assert not hosting.loaded.done(), "two workers do not have it yet"
    for worker in busy:
        pool.give_back(worker)
    await hosting.loaded
    assert all(set(handle.models) == {"affine@1", "pair@2"} for handle in fakes.handles)


async def test_workers_that_are_older_than_a_model_are_replaced_one_after_the_other(pool: Pool, fakes: Fakes) -> None:
    await loaded(pool)
    busy, fakes.slow = pool.take("affine@1"), True
    hosting = pool.add("pair@2", PAIR, asyncio.get_running_loop().time())
    for begun in (1, 2):
        await until(lambda: fakes.starting)
        assert states(pool) == {"computing": 1, "idle": 1, "starting": 1}, "two are there to compute"
        fakes.connect()
        await until(lambda begun=begun: len(fakes.handles) == 3 + begun)
        await until(lambda begun=begun: sum("pair@2" in handle.models for handle in fakes.alive()) == begun)
    assert not hosting.loaded.done() and not fakes.starting, "the oldest one computes"
    fakes.slow = False
    pool.give_back(busy)
    await hosting.loaded
    await ready(pool)
    assert len(fakes.handles) == 6 and all({"affine@1", "pair@2"} == set(handle.models) for handle in fakes.alive())
    assert not pool.trouble and not hosting.changed.done()


async def test_a_worker_that_finds_other_code_than_was_prepared_says_so(pool: Pool, fakes: Fakes) -> None:
    await ready(pool)
    fakes.refused["pair"] = CodeChanged("/shop/model.py has changed")
    hosting = pool.add("pair@2", PAIR)
    await hosting.changed
    assert not hosting.loaded.done() and not hosting.refused.done()
    pool.remove("pair@2")
    await ready(pool)


async def test_a_model_that_has_gone_is_forgotten(pool: Pool, fakes: Fakes) -> None:
    await loaded(pool)
    busy = pool.take("affine@1")
    pool.remove("affine@1")
    pool.remove("unknown")
    await until(lambda: sum(map(bool, (handle.models for handle in fakes.handles))) == 1)
    assert busy.handle.models, "it computes with it"  # type: ignore[attr-defined]
    pool.give_back(busy)
    await until(lambda: not any(handle.models for handle in fakes.handles))


async def test_a_model_that_cannot_be_loaded_is_left_out(pool: Pool, fakes: Fakes) -> None:
    fakes.refused["pair"] = ModelFailed("the weights do not fit")
    affine, pair = pool.add("affine@1", AFFINE), pool.add("pair@2", PAIR)
    assert await pair.refused == "the weights do not fit"
    await affine.loaded
    await ready(pool)
    assert not pair.loaded.done() and len(fakes.alive()) == 3


async def test_a_model_that_kills_who_loads_it_is_left_out(pool: Pool, fakes: Fakes) -> None:
    fakes.dies.add(("load", "pair"))
    affine, pair = pool.add("affine@1", AFFINE), pool.add("pair@2", PAIR)
    assert await pair.refused == "2 workers in a row have died while they loaded it"
    await affine.loaded
    await ready(pool)


async def test_deaths_far_from_each_other_are_not_the_models_fault(pool: Pool, fakes: Fakes) -> None:
    hosting = pool.add("affine@1", AFFINE)
    for _ in range(3):
        await hosting.loaded
        await ready(pool)
        fakes.hold("load")
        fakes.alive()[0].die()
        await until(lambda: fakes.doing)
        (handle,) = fakes.doing
        handle.die()
        fakes.let_go("load")
    await ready(pool)
    assert not hosting.refused.done()


@pytest.mark.parametrize("state", ["idle", "computing", "loading"])
async def test_a_worker_that_dies_is_replaced(pool: Pool, fakes: Fakes, state: str) -> None:
    await loaded(pool)
    worker = pool.take("affine@1")
    if state == "idle":
        pool.give_back(worker)
    if state == "loading":
        fakes.hold("load")
        pool.add("pair@2", PAIR)
        await until(lambda: fakes.doing)
        (handle,) = fakes.doing
    else:
        (handle,) = [each for each in fakes.handles if each is worker.handle]
    handle.die()
    if state == "computing":
        pool.give_back(worker, lost=True)
    else:
        pool.give_back(worker)
    if state == "loading":
        fakes.let_go("load")
    await until(lambda: len(fakes.handles) == 4)
    await ready(pool)
    assert handle not in fakes.alive() and handle.closed


async def test_a_dead_worker_is_not_taken(fakes: Fakes) -> None:
    pool = fakes.pool(standby=1)
    await loaded(pool, 2)
    for handle in fakes.handles:
        handle.die()
    assert not pool.has_idle, "nobody has had the time to notice, but they are dead"
    await pool.close()


async def test_who_gives_up_a_worker_has_another(pool: Pool, fakes: Fakes) -> None:
    await loaded(pool)
    worker = pool.take("affine@1")
    pool.give_back(worker, lost=True)  # it hangs
    await until(lambda: len(fakes.handles) == 4)
    await ready(pool)
    assert fakes.jobs[fakes.handles.index(worker.handle)].cancelled  # type: ignore[arg-type]


async def test_an_idle_worker_that_is_stopped_is_replaced_before_it_is_needed(pool: Pool, fakes: Fakes) -> None:
    await loaded(pool)
    worker = pool.take("affine@1")
    (idle, _) = [handle for handle in fakes.handles if handle is not worker.handle]
    idle.stopped = True
    await until(lambda: len(fakes.handles) == 4)
    pool.give_back(worker)
    await ready(pool)
    assert idle.killed and not pool.degraded


@pytest.mark.parametrize("given_up", [False, True])
async def test_the_job_of_a_worker_that_died_ends_as_it_did(fakes: Fakes, given_up: bool) -> None:
    """It is not cancelled before the daemon has heard of its end; one that only hangs is, at once."""
    pool = fakes.pool(standby=0, pauses=RestartPauses(0.0, 0.0, 3600.0))
    await loaded(pool, 1)
    worker = pool.take("affine@1")
    (job,), (handle,) = fakes.jobs, fakes.handles
    if not given_up:
        handle.die()
    pool.give_back(worker, lost=True)
    for _ in range(100):
        await asyncio.sleep(0)
    assert job.cancelled == given_up and len(fakes.handles) == 1 + given_up
    job.over.set()
    await until(lambda: job.cancelled and len(fakes.handles) == 2)
    await pool.close()


@pytest.mark.parametrize("fault", ["unstartable", "stillborn"])
async def test_a_worker_that_cannot_be_started_is_tried_again(
    fakes: Fakes, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    setattr(fakes, fault, 5)
    pool, seen = fakes.pool(), list[str]()
    pool.changed = lambda: seen.append(pool.trouble if pool.out_of_service else "")
    hosting = pool.add("affine@1", AFFINE)
    with caplog.at_level(logging.WARNING):
        await hosting.loaded
        await ready(pool)
    reasons = {
        "unstartable": "no daemon is running",
        "stillborn": "worker job 1 ended before it was ready: exit code 1",
    }
    assert seen[0] == reasons[fault] and seen[-1] == "" and not pool.out_of_service
    assert len([record for record in caplog.records if "the next attempt in" in record.message]) == 5
    await pool.close()


async def test_a_worker_that_ends_without_having_computed_counts_as_a_failure(
    fakes: Fakes, caplog: pytest.LogCaptureFixture
) -> None:
    pool, out_of_service = fakes.pool(), list[bool]()
    await ready(pool)
    pool.changed = lambda: out_of_service.append(pool.out_of_service)
    fakes.handles[0].die()
    await until(lambda: len(fakes.handles) == 4)
    await ready(pool)
    assert "worker job 1 ended before it computed anything: it has hung up; the next attempt in" in caplog.text
    assert not any(out_of_service), "the others can compute"
    await pool.close()


async def test_a_worker_that_comes_when_nobody_waits_any_more_is_closed(fakes: Fakes) -> None:
    fakes.slow = True
    pool = fakes.pool()
    await until(lambda: len(fakes.starting) == 3)
    fakes.connect()
    await pool.close()
    assert all(handle.closed for handle in fakes.handles) and len(fakes.handles) == 3


async def test_closing_in_the_middle_of_everything(fakes: Fakes) -> None:
    fakes.hold("load")
    pool = fakes.pool()
    pool.add("affine@1", AFFINE)
    await until(lambda: len(fakes.doing) == 3)
    await pool.close()
    assert not fakes.doing and all(handle.closed for handle in fakes.handles)
    await until(lambda: len(asyncio.all_tasks()) == 1)
