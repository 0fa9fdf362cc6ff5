"""Workers of models as jobs of a real daemon: right answers, weights that they share, and training notices nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.protocol.api import SubmitRequest
from carpool.serve.pool.worker_handle import Handle, WorkerSocket
from carpool.serve.prepare.subprocess import PreparedModel
from tests.live import Running

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon
    from tests.live import Workload


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global zoo, SEED, alone, prepared, request
    from tests.serve import zoo
    from tests.serve.working import SEED, alone, prepared, request


NAMES = ("residual", "tied", "brain")
WORKERS = 2
ROUNDS = 20


@pytest.fixture
def models(one_thread: None) -> Iterator[dict[str, PreparedModel]]:
    made = {name: prepared(name) for name in NAMES}
    yield made
    for model in made.values():
        os.close(model.image)


async def right_answers(handle: Handle, models: dict[str, PreparedModel]) -> int:
    """Of `ROUNDS` for each model."""
    right = 0
    inputs = {name: zoo.INPUTS[name]() for name in NAMES}
    expected = {name: [alone(name, SEED, x)] for name, x in inputs.items()}
    for name, model in models.items():
        await handle.load(name, model)
    for _ in range(ROUNDS):
        for name, x in inputs.items():
            asked = request(name, **{models[name].model.inputs[0].name: x})
            right += await handle.infer(name, [asked], None) == expected[name]
    return right


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches",
    stays="tests/e2e/test_serving.py::test_answers_and_training_are_what_they_are_alone",
)
async def test_workers_beside_training(
    bare: Bare,
    eager_daemon: Daemon,
    environment: dict[str, str],
    workload: type[Workload],
    models: dict[str, PreparedModel],
    python: str,
    root: Path,
) -> None:
    (expected,) = bare([workload("adam")])
    door = WorkerSocket()
    comers = [door.expect() for _ in range(WORKERS)]
    argv = [python, "-m", "carpool.serve.worker"]
    workers = [
        Running(eager_daemon, eager_daemon.client.submit(SubmitRequest(argv, str(root), env, service=1)), Path())
        for env in (environment | comer.env for comer in comers)
    ]
    handles = await asyncio.gather(*(comer.handle for comer in comers))
    training = eager_daemon.submit_script(workload("adam"))
    right = await asyncio.gather(*(right_answers(handle, models) for handle in handles))
    assert right == [ROUNDS * len(NAMES)] * WORKERS
    assert await asyncio.to_thread(training.result) == expected
    for handle in handles:
        handle.close()
    door.close()
    for worker in workers:
        info = await asyncio.to_thread(worker.wait)
        assert (info.outcome, worker.log()) == ("succeeded", "")
