"""`carpool serve` with PyTorch's CUDA build: 27 models on a GPU that holds a third of them, every answer checked."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from carpool.protocol.models import ModelRequest
from carpool.serve.client import Client
from tests import emulated
from tests.cuda.pytorch.rig import KNOWN, PROGRAMS, SLOW_KERNELS, differing, right
from tests.cuda.rig import Daemon, Daemons
from tests.devices.cuda_stub import Stub
from tests.e2e.fronts import Front
from tests.tiers import RARER_WAY


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, Tensor, zoo
    import torch
    from torch import Tensor

    from tests.cuda.pytorch.programs import zoo


CAPACITY = "100MiB"
MEMORY = 16 << 30  # of the GPU: nine workers, three for each priority, have contexts there
MODELS, FEWER = 27, 18  # three of each family, 237 MiB, and two of each, 158
REQUESTS, PER_SECOND, CALLERS, SEEDS = 200, 20.0, 8, 3
STAYS = "tests/e2e/test_services.py::test_training_beside_a_service_is_bit_identical"


Asked = tuple[str, int]  # a model, and which of its inputs


@dataclass(frozen=True)
class Kind:
    """A device, and the interpreter of its models."""

    device: str
    python: str


GPU = Kind(f"cuda:0:{CAPACITY}", emulated.PYTHON)
HOST = Kind(f"host:{CAPACITY}", sys.executable)


@pytest.fixture(autouse=True)
def as_in_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sums are added in one order, and what models of the zoo switch off is on again for later tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    with torch.backends.nnpack.flags(False):
        yield
    torch.set_num_threads(before)


@contextmanager
def serving(
    daemon: Daemon, kind: Kind, names: Sequence[str], order: str, cache: Path, environment: dict[str, str]
) -> Iterator[Front]:
    """With deadlines, which all are kept, and priorities that differ.  ``environment``: of the models."""
    for number, name in enumerate(names):
        limits = {
            "deadline_us": (10 + number % 3) * 1_000_000,
            "priority": 1 + number % 3 * (order == "priority"),
            "max_batch": 1,
        }
        request = ModelRequest(f"zoo:{name}", kind.python, str(PROGRAMS), environment, **limits)
        daemon.client.add_model(name, request)
    front = Front(daemon, names, f"--order={order}", cache=cache)
    try:
        yield front
        front.stop()
    finally:
        front.close()


def answers(names: Sequence[str]) -> dict[Asked, tuple[Tensor, bytes]]:
    """Without Carpool, on the CPU: inputs, and the bits of the output."""
    found = {}
    with torch.inference_mode():
        for name in names:
            model = zoo.model(name)
            for seed in range(SEEDS):
                inputs = zoo.example(name, seed)
                found[name, seed] = inputs, bytes(model(inputs).numpy().tobytes())
    return found


def arrivals(of: Sequence[Asked], chance: random.Random) -> Iterator[Asked]:
    """A Poisson process: waits for each request's time."""
    at = time.monotonic()
    for _ in range(REQUESTS):
        at += chance.expovariate(PER_SECOND)
        time.sleep(max(0.0, at - time.monotonic()))  # the process itself, no synchronization
        yield chance.choice(of)


def wrong(front: Front, names: Sequence[str]) -> list[Asked]:
    """Requests whose answers are."""
    known = answers(names)

    def right_answer(each: Asked) -> bool:
        inputs, output = known[each]
        with Client(front.url) as client:
            return bytes(client.infer(each[0], inputs.numpy()).tobytes()) == output

    with ThreadPoolExecutor(CALLERS) as callers:
        sent = [(each, callers.submit(right_answer, each)) for each in arrivals(list(known), random.Random(3))]
        return [each for each, answer in sent if not answer.result()]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where fronts keep what they have learned of models: each model is prepared once for each kind of device."""
    return tmp_path_factory.mktemp("prepared")


@pytest.mark.nightly("minutes of PyTorch", stays=STAYS)
@pytest.mark.parametrize(
    ("kind", "order", "models"),
    [(GPU, "edf", MODELS), (GPU, "priority", FEWER), (HOST, "fcfs", FEWER)],
    ids=["cuda-edf", "cuda-priority", "host-fcfs"],
)
def test_many_models(daemons: Daemons, stub: Stub, prepared: Path, kind: Kind, order: str, models: int) -> None:
    stub.devices(MEMORY)
    names, environment = zoo.names(models), emulated.clean() | (stub.environment() if kind is GPU else {})
    daemon = daemons(kind.device)
    with serving(daemon, kind, names, order, prepared, environment) as front:
        assert wrong(front, names) == []
    assert dropped(daemon) >= models


def dropped(daemon: Daemon) -> int:
    """How often the weights of a model have made room for another's."""
    return sum(event.kind == "DropWeights" for event in daemon.client.events())


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_training_beside_models(daemons: Daemons, stub: Stub, tmp_path: Path) -> None:
    """Requests pause training, also where it is ahead of slow kernels; it notices nothing."""
    names = ["mlp0", "gpt0", "cnn0"]
    daemon = daemons()
    with serving(daemon, GPU, names, "fcfs", tmp_path, emulated.clean() | stub.environment()) as front:
        jobs = [
            daemon.submit("integrity 1 300 8", **KNOWN),
            daemon.submit("ahead 2 500", env=SLOW_KERNELS, **KNOWN),
        ]
        daemon.until(lambda: all(job.info().iterations > 3 for job in jobs))
        assert wrong(front, names) == []
        assert differing(jobs[0].result(), right("")) == []
        assert jobs[1].result()["wrong"] == 0  # it is hardly ahead while models are on the device
    paused = Counter(event.job for event in daemon.client.events() if event.kind == "TurnPaused")
    assert all(paused[job.id] >= 5 for job in jobs), paused
