"""Everything together, but the daemon: real preparation, real workers, the real endpoint, and NVIDIA's client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http.aio as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from carpool.protocol.models import ORDERS, FrontOptions
from carpool.serve.pool.pool import Pool, RestartPauses
from carpool.serve.pool.worker_handle import WorkerSocket
from carpool.serve.prepare.subprocess import prepare
from carpool.serve.queue.batching import Order
from carpool.serve.server import ServerParts, serve
from tests.serve.fakes import until
from tests.serve.plain import PlainLauncher, Registry


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, working, Stage, WIDTH
    import torch

    from tests.serve import working
    from tests.serve.working import Stage
    from tests.serve.zoo import WIDTH


class Running:
    """`serve` in a task, and what it says."""

    def __init__(self, registry: Registry, **choices: Any) -> None:
        self.registry, self.launcher, self.door = registry, PlainLauncher(), WorkerSocket()
        self.pools: list[Pool] = []
        self.lines: list[str] = []
        self.stopping = asyncio.Event()
        serving = FrontOptions(home="", port=0, standby=1, store_bytes=1 << 30, **choices)
        self.task = asyncio.create_task(
            serve(serving, ServerParts(registry, prepare, self.pool, None), self.stopping, self.lines.append)
        )

    def pool(self, environment: Any) -> Pool:
        self.pools.append(Pool(environment, self.launcher, self.door, standby=1, pauses=RestartPauses(0.1, 0.1, 0.1)))
        return self.pools[-1]

    async def until_said(self, line: str) -> str:
        await until(lambda: self.task.done() or any(line in said for said in self.lines))
        if self.task.done():
            await self.task
        return next(said for said in self.lines if line in said)

    async def client(self) -> triton.InferenceServerClient:
        url = await self.until_said("serving on ")
        return triton.InferenceServerClient(url.removeprefix("serving on http://"))

    async def stop(self) -> None:
        self.stopping.set()
        await self.task
        self.door.close()
        assert all(job.process.returncode is not None for job in self.launcher.jobs)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
async def running(root: Path, stage: Stage) -> AsyncIterator[Running]:
    running = Running(Registry(root, stage.env))
    yield running
    await running.stop()


def inputs(what: int, rows: int = 1) -> list[triton.InferInput]:
    arrays = {"x": np.full((rows, WIDTH), rows, np.float32), "what": np.full(rows, what, np.int64)}
    made = []
    for name, values in arrays.items():
        made.append(triton.InferInput(name, list(values.shape), np_to_triton_dtype(values.dtype)))
        made[-1].set_data_from_numpy(values)
    return made


async def test_models_are_served_and_come_and_go(running: Running, cache: Path) -> None:
    running.registry.host("residual")
    running.registry.host("broken", "raising")
    client = await running.client()
    await running.until_said("model residual is ready")
    assert "no such architecture" in await running.until_said("model broken: ")
    index = {entry["name"]: entry for entry in await client.get_model_repository_index()}
    assert index["residual"]["state"] == "READY" and index["broken"]["state"] == "UNAVAILABLE"
    assert "no such architecture" in index["broken"]["reason"]
    metadata = await client.get_model_metadata("residual")
    shape = [3, *metadata["inputs"][0]["shape"][1:]]
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    given = triton.InferInput(metadata["inputs"][0]["name"], shape, metadata["inputs"][0]["datatype"])
    given.set_data_from_numpy(x.numpy())
    (wanted,) = working.alone("residual", 0, x)
    answer = await client.infer("residual", [given])
    assert answer.as_numpy(metadata["outputs"][0]["name"]).tobytes() == bytes(wanted.data)
    with pytest.raises(InferenceServerException, match=r"model 'broken' is not available: .*no such architecture"):
        await client.infer("broken", [given])
    profiles = cache / "carpool" / "profiles"
    assert (profiles / "residual.json").exists() and profiles.stat().st_mode & 0o77 == 0
    running.registry.host("trying")
    await running.until_said("model trying is ready")
    assert len(running.pools) == 1, "one environment"
    assert (await client.infer("trying", inputs(0, 2))).as_numpy("twice").tolist() == [[4.0] * WIDTH] * 2
    del running.registry.infos["trying"]
    await until(lambda: len(running.pools[0]._hosted) == 1)
    with pytest.raises(InferenceServerException, match="there is no model 'trying'"):
        await client.infer("trying", inputs(0))
    await client.close()


async def test_a_killed_worker_and_a_server_that_stops(running: Running, stage: Stage) -> None:
    """The request is tried once more; and what has begun when the server stops is answered."""
    running.registry.host("trying")
    client = await running.client()
    await running.until_said("model trying is ready")
    asked = asyncio.create_task(client.infer("trying", inputs(3)))
    for _ in range(2):
        await stage.reached()
        (worker,) = [worker for worker in running.pools[0]._workers if worker.state == "computing"]
        running.launcher.kill(worker.handle.pid)
    with pytest.raises(InferenceServerException, match="died, and so did the one that tried again"):
        await asked
    answers = [await client.infer("trying", inputs(0)) for _ in range(3)]
    assert [answer.as_numpy("twice")[0, 0] for answer in answers] == [2.0] * 3
    with pytest.raises(InferenceServerException, match="no such word"):
        await client.infer("trying", inputs(1))
    await stopping_answers_what_has_begun(running, client, stage)
    await client.close()


async def stopping_answers_what_has_begun(running: Running, client: Any, stage: Stage) -> None:
    asked = asyncio.create_task(client.infer("trying", inputs(4)))
    await stage.reached()
    running.stopping.set()
    assert (await asked).as_numpy("twice")[0, 0] == 2.0


SHOP = """
import torch
from parts.scale import SCALE

def scaling():
    model = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.constant_(model.weight, SCALE)
    model.example_inputs = torch.zeros(1, 2)
    return model
"""
PLANTED = "raise SystemExit(f'{__name__} is somebody else's')"


@pytest.mark.nightly(
    "a preparation and two workers for each of three models",
    stays="tests/serve/test_front.py::test_a_model_whose_code_has_changed_gets_workers_of_its_own",
)
async def test_code_is_that_of_the_registration_and_nobody_elses(running: Running, tmp_path: Path) -> None:
    """What others put into the working directory replaces no module, and workers keep no old code."""
    for name in ("carpool", "json", "torch", "safetensors", "pickle"):
        (tmp_path / f"{name}.py").write_text(PLANTED)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "scale.py").write_text("SCALE = 3.0")
    running.registry.add("one", factory="shop:scaling", python=sys.executable, cwd=str(tmp_path))
    client = await running.client()
    await running.until_said("model one is ready")
    assert await scaled(client, "one") == [9.0, 9.0]
    await until(lambda: running.pools[0].states()["idle"] == 2)
    (tmp_path / "parts" / "scale.py").write_text("SCALE = 4.0")  # as long, and perhaps within the same second
    (tmp_path / "shop.py").write_text(SHOP + "\ndef other():\n    return scaling()\n")
    running.registry.add("two", factory="shop:other", python=sys.executable, cwd=str(tmp_path))
    await running.until_said("model two is ready")
    assert [await scaled(client, name) for name in ("one", "two")] == [[9.0, 9.0], [12.0, 12.0]]
    running.lines.clear()
    running.registry.add("one", factory="shop:scaling", python=sys.executable, cwd=str(tmp_path), added_us=9)
    await running.until_said("model one is ready")
    assert await scaled(client, "one") == [12.0, 12.0]
    await until(lambda: running.pools[-1].states()["idle"] == 2)
    await client.close()


async def scaled(client: Any, model: str) -> list[float]:
    given = triton.InferInput("input", [1, 2], "FP32")
    given.set_data_from_numpy(np.float32([[1, 2]]))
    return list((await client.infer(model, [given])).as_numpy("output")[0])


def test_the_command_line_knows_all_orders() -> None:
    assert tuple(Order) == ORDERS
