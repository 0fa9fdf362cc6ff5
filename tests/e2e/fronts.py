"""`carpool serve` of tests: a process beside a real daemon, asked through NVIDIA's client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import np_to_triton_dtype

from carpool.protocol.models import ModelRequest
from tests.e2e.fates import NOTHING, STAGE, WIDTH
from tests.e2e.watching import until
from tests.live import python_path
from tests.metrics_page import total

if TYPE_CHECKING:
    import torch

    from tests.e2e.conftest import Daemon

ROOT = Path(__file__).parents[2]
PATIENCE_S = 100.0


def register(daemon: Daemon, environment: Mapping[str, str], stage: Path, **factories: str | None) -> None:
    """Models by name: the file of weights of each, None: as `tests.e2e.hosted` makes it."""
    env = dict(environment) | {STAGE: str(stage), "PYTHONPATH": python_path(ROOT)}
    for name, weights in factories.items():
        factory = f"tests.e2e.hosted:{name if weights is None else 'small'}"
        daemon.client.add_model(name, ModelRequest(factory, sys.executable, str(ROOT), env, weights, max_batch=1))


class Front:
    """``models``: those that it serves.  ``lines``: what it has said of each, by name."""

    def __init__(self, daemon: Daemon, models: Sequence[str], *options: str, cache: Path) -> None:
        self.daemon, self.models = daemon, models
        chosen = [f"--model={name}" for name in models]
        command = [sys.executable, "-m", "carpool.cli", "serve", "--json", "--port=0", f"--home={daemon.home}"]
        self.process = subprocess.Popen(
            [*command, *chosen, *options],
            stdout=subprocess.PIPE,
            stderr=(daemon.home / "serve.log").open("a"),
            text=True,
            env=os.environ | {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(daemon.home)},  # it may be killed
        )
        self.url = self._said()["url"]
        self.lines: dict[str, dict[str, Any]] = {}
        while self.lines.keys() != set(models):
            line = self._said()
            self.lines[line["model"]] = line

    def _said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.daemon.home / "serve.log").read_text()
        said: dict[str, Any] = json.loads(line)
        return said

    def client(self) -> triton.InferenceServerClient:
        address = self.url.removeprefix("http://")
        return triton.InferenceServerClient(address, connection_timeout=PATIENCE_S, network_timeout=PATIENCE_S)

    def metric(self, name: str, **labels: str) -> float:
        """The sum over all series with these labels."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=PATIENCE_S) as answer:
            return total(answer.read(), name, **labels)

    def workers(self) -> list[int]:
        """Those of the daemon's jobs that live and have a process."""
        jobs = (job for job in self.daemon.client.jobs() if job.name == "model worker" and job.phase == "running")
        return [job.id for job in jobs]

    def settle(self, workers: int) -> None:
        """Until so many are idle."""
        until(lambda: self.metric("carpool_workers", state="idle") == workers, self.daemon)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, (self.daemon.home / "serve.log").read_text()

    def close(self) -> None:
        """Also after a failure."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def given(name: str, value: np.ndarray[Any, Any]) -> triton.InferInput:
    made = triton.InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
    made.set_data_from_numpy(value)
    return made


def ask(client: triton.InferenceServerClient, model: str, seed: int, what: int = NOTHING) -> bytes:
    """The bits of the answer for random inputs."""
    inputs = [given("x", sample(seed).numpy()), given("what", np.full(1, what))]
    answer: bytes = client.infer(model, inputs).as_numpy("output").tobytes()
    return answer


def sample(seed: int) -> torch.Tensor:
    import torch

    return torch.rand(1, WIDTH, generator=torch.Generator().manual_seed(seed))


def alone(model: str, seeds: Sequence[int]) -> list[bytes]:
    """What a model answers without Carpool."""
    import torch

    from carpool.serve.model import skeleton
    from tests.e2e import hosted

    module = skeleton.build(getattr(hosted, model), 0, weights=True)
    nothing = torch.zeros(1, dtype=torch.int64)
    with torch.inference_mode():
        return [module(sample(seed), nothing).numpy().tobytes() for seed in seeds]
