"""Engines beside training: both compute what they compute alone, and each gives way to the other."""

from __future__ import annotations

import random
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.live import PATIENCE_S

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons
    from tests.live import Running, Workload

Answers = dict[str, list[int]]
CACHE_MIB = 24
PROMPTS = [f"prompt {number} of many" for number in range(12)]


class Asked:
    """A client of an engine, with a connection of its own for each prompt."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def connect(self) -> socket.socket:
        until = time.monotonic() + PATIENCE_S
        while True:
            client = socket.socket(socket.AF_UNIX)
            try:
                client.connect(str(self._path))
                return client
            except OSError:
                client.close()
                assert time.monotonic() < until, "the engine does not answer"
                time.sleep(0.02)

    def answer(self, prompt: str) -> list[int]:
        with closing(self.connect()) as client, client.makefile("rw") as lines:
            lines.write(f"{prompt}\n")
            lines.flush()
            return [int(line) for line in iter(lines.readline, "\n")]

    def end(self) -> None:
        with closing(self.connect()) as client:
            client.sendall(b"end\n")


class Front:
    """Says for an engine when it has requests, as `carpool serve` does."""

    def __init__(self, daemon: Daemon, workload: type[Workload], name: str, *how: str) -> None:
        path = daemon.home / f"{name}.sock"
        self._daemon, self._client = daemon, Asked(path)
        script = workload("engine", (str(path), str(CACHE_MIB), *how))
        self.job: Running = daemon.submit_script(script, service=100, engine=True, name=name)

    @contextmanager
    def busy(self) -> Iterator[None]:
        self._daemon.client.set_busy(self.job.id, True)
        yield
        self._daemon.client.set_busy(self.job.id, False)

    def answer(self, prompt: str) -> list[int]:
        with self.busy():
            return self._client.answer(prompt)

    def end(self) -> None:
        with self.busy():
            self._client.end()
        self.job.result()


@pytest.fixture(scope="module")
def alone(environment: dict[str, str], workload: type[Workload], tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The answers of an engine without Carpool."""
    directory = tmp_path_factory.mktemp("alone")
    path = directory / "engine.sock"
    engine = subprocess.Popen(
        workload("engine", (str(path), str(CACHE_MIB))).command(directory / "out"), env=environment
    )
    client = Asked(path)
    found = {prompt: client.answer(prompt) for prompt in PROMPTS}
    client.end()
    assert engine.wait(PATIENCE_S) == 0
    return found


def test_an_engine_beside_training(
    bare: Bare, eager_daemon: Daemon, alone: Answers, workload: type[Workload], tmp_path: Path
) -> None:
    front, stop = Front(eager_daemon, workload, "engine"), tmp_path / "stop"
    training = eager_daemon.submit(workload("steady", ("busily", str(stop))))
    pauses = random.Random(1)
    for prompt in PROMPTS:
        assert front.answer(prompt) == alone[prompt]
        time.sleep(pauses.uniform(0, 0.1))  # training computes meanwhile
    stop.touch()
    result = training.result()
    assert [result] == bare([workload("steady", ("count", str(result["count"])))])
    front.end()


def test_engines_that_do_not_fit_together_leave_no_residue(
    daemons: Daemons, alone: Answers, workload: type[Workload]
) -> None:
    daemon = daemons(f"host:{CACHE_MIB + CACHE_MIB // 2}MiB")
    fronts = [Front(daemon, workload, name) for name in ("one", "other")]
    for prompt in PROMPTS:
        assert [front.answer(prompt) for front in fronts] == [alone[prompt]] * 2
    for front in fronts:
        info = front.job.info()
        assert info.residue_bytes == 0 and info.switches >= len(PROMPTS)
        front.end()


@pytest.mark.nightly("one more engine", stays="test_an_engine_beside_training")
def test_a_worker_of_multiprocessing_computes_with_the_engines_seat(
    eager_daemon: Daemon, alone: Answers, workload: type[Workload]
) -> None:
    front = Front(eager_daemon, workload, "worker", "worker")
    assert front.answer(PROMPTS[0]) == alone[PROMPTS[0]]
    assert front.job.info().persistent_bytes > CACHE_MIB << 20, "its memory is that of the device"
    front.end()
