"""Engines behind `carpool serve`, beside training: both compute what they compute alone, and each gives way."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.protocol.engines import EngineInfo
from tests.e2e.watching import until
from tests.live import PATIENCE_S

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons
    from tests.live import Workload

Answers = dict[str, str]
Table = dict[str, str | bool | list[str]]  # of the file of engines
LLM = Path(__file__).parents[2] / "tools" / "demo" / "programs" / "llm.py"
CACHE_MIB = 24
KNOWN = {"persistent_bytes": CACHE_MIB << 20, "ephemeral_bytes": 4 << 20}
ROUNDS = 200
PROMPTS = [f"prompt {number} of many" for number in range(12)]


def command(port: str, *how: str) -> list[str]:
    return [sys.executable, str(LLM), port, str(CACHE_MIB), *how]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def completed(url: str, model: str, prompt: str, events: int | None = None) -> str:
    """``events``: of the answer, after which the client leaves; None: all."""
    body = json.dumps({"model": model, "prompt": prompt, "stream": True}).encode()
    asked = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        lines = itertools.islice(answer, events and 2 * events)  # an empty one follows each
        return b"".join(lines).decode()


def until_it_answers(engine: subprocess.Popen[bytes], url: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=PATIENCE_S).close()
        except OSError:
            assert time.monotonic() < end_s and engine.poll() is None, "the engine does not answer"
            time.sleep(0.05)
        else:
            return


class Front:
    """A `carpool serve` with engines: by name, their tables."""

    def __init__(self, daemon: Daemon, environment: Mapping[str, str], engines: Mapping[str, Table]) -> None:
        self.daemon = daemon
        file = daemon.home / "engines.toml"
        lines = (
            [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in engines[name].items())] for name in engines
        )
        file.write_text("\n".join(line for table in lines for line in table))
        options = ["--json", "--port=0", f"--home={daemon.home}", f"--engines={file}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "carpool.cli", "serve", *options],
            stdout=subprocess.PIPE,
            stderr=(daemon.home / "serve.log").open("a"),
            env=os.environ | environment,
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def complete(self, model: str, prompt: str, events: int | None = None) -> str:
        return completed(self.url, model, prompt, events)

    def engine(self, name: str) -> EngineInfo:
        return next(each for each in self.daemon.client.engines() if each.name == name)

    def job(self, name: str) -> int:
        until(lambda: self.engine(name).report.job is not None, self.daemon)
        job = self.engine(name).report.job
        assert job is not None
        return job

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


Start = Callable[..., Front]


@pytest.fixture
def start(jobs_environment: dict[str, str]) -> Iterator[Start]:
    fronts: list[Front] = []

    def started(daemon: Daemon, **engines: list[str]) -> Front:
        """``engines``: what is behind the command of each."""
        tables: dict[str, Table] = {name: {"cmd": command("{port}", *how)} for name, how in engines.items()}
        fronts.append(Front(daemon, jobs_environment, tables))
        return fronts[-1]

    yield started
    for front in fronts:
        front.stop()


@pytest.fixture(scope="module")
def bare_engine(environment: dict[str, str]) -> Iterator[str]:
    """The address of an engine without Carpool."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    engine = subprocess.Popen(command(str(port)), env=environment)
    until_it_answers(engine, url)
    yield url
    engine.terminate()
    engine.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def alone(bare_engine: str) -> Answers:
    return {prompt: completed(bare_engine, "", prompt) for prompt in PROMPTS}


def test_an_engine_beside_training(
    bare: Bare, eager_daemon: Daemon, start: Start, alone: Answers, workload: type[Workload], tmp_path: Path
) -> None:
    front, stop = start(eager_daemon, llm=[]), tmp_path / "stop"
    training = eager_daemon.submit(workload("steady", ("busily", str(stop))))
    pauses = random.Random(1)
    for prompt in PROMPTS:
        assert front.complete("llm", prompt) == alone[prompt]
        time.sleep(pauses.uniform(0, 0.1))  # training computes meanwhile
    stop.touch()
    result = training.result()
    assert [result] == bare([workload("steady", ("count", str(result["count"])))])


def test_engines_that_do_not_fit_together_leave_no_residue(daemons: Daemons, start: Start, alone: Answers) -> None:
    front = start(daemons(f"host:{CACHE_MIB + CACHE_MIB // 2}MiB"), one=[], other=[])
    for prompt in PROMPTS:
        assert [front.complete(model, prompt) for model in ("one", "other")] == [alone[prompt]] * 2
    for model in ("one", "other"):
        info = front.daemon.client.job(front.job(model))
        assert info.residue_bytes == 0 and info.switches >= len(PROMPTS)


@pytest.mark.nightly(
    "engines start again and again",
    stays="tests/serve/engines/test_engines.py::test_an_engine_makes_room_unless_it_has_requests",
)
def test_engines_that_fit_neither_device_nor_host_store_end_in_turn(
    daemons: Daemons, start: Start, alone: Answers
) -> None:
    daemon = daemons(f"host:{CACHE_MIB + CACHE_MIB // 2}MiB", host_store=(CACHE_MIB + CACHE_MIB // 2) << 20)
    front, models = start(daemon, one=[], two=[], three=[]), ("one", "two", "three")
    for prompt in PROMPTS[:2]:
        assert [front.complete(model, prompt) for model in models] == [alone[prompt]] * 3
    ended = [event for event in daemon.client.events() if event.kind == "StopEngine"]
    assert ended and max(front.engine(model).report.starts for model in models) > 1


def test_a_front_that_was_killed(eager_daemon: Daemon, start: Start, alone: Answers) -> None:
    """The next one goes on with the engine that it has left, lets it sleep, and ends it at its own end."""
    killed = start(eager_daemon, llm=[])
    assert killed.complete("llm", PROMPTS[0]) == alone[PROMPTS[0]]
    job = killed.job("llm")
    killed.stop(signal.SIGKILL)
    until(lambda: eager_daemon.client.engines() == [], eager_daemon)
    front = start(eager_daemon, llm=[])
    assert front.complete("llm", PROMPTS[1]) == alone[PROMPTS[1]]
    assert front.job("llm") == job and front.engine("llm").report.starts == 0
    eager_daemon.client.wish_engine("llm", "sleep")
    until(lambda: front.engine("llm").moved_out, eager_daemon)
    assert 0 < eager_daemon.client.job(job).stored_bytes < CACHE_MIB << 19, "what is zero of its cache is not moved"
    assert front.complete("llm", PROMPTS[2]) == alone[PROMPTS[2]], "a request brings its memory back"
    front.stop()
    assert eager_daemon.client.job(job).outcome == "cancelled"


@pytest.mark.nightly("the parts are tested", stays="test_an_engine_beside_training")
def test_training_that_asks_an_engine(
    bare: Bare, daemons: Daemons, start: Start, bare_engine: str, workload: type[Workload]
) -> None:
    """A trainer and its rollout engine do not fit together, and take turns by what the trainer asks."""
    daemon = daemons(f"host:{CACHE_MIB + CACHE_MIB // 2}MiB")
    front = start(daemon, llm=[])
    training = daemon.submit(workload("rollouts", (front.url, "20")), ballast_mib=CACHE_MIB // 2)
    assert [training.result()] == bare([workload("rollouts", (bare_engine, "20"))])


@pytest.mark.nightly("a minute of requests", stays="test_an_engine_beside_training")
def test_requests_at_random_moments(
    bare: Bare,
    daemons: Daemons,
    start: Start,
    bare_engine: str,
    workload: type[Workload],
    tmp_path: Path,
    moments: random.Random,
) -> None:
    """Up to three requests at once come, and leave, in any moment of training that does not fit beside the engine."""
    daemon, stop = daemons(f"host:{CACHE_MIB + CACHE_MIB // 2}MiB"), tmp_path / "stop"
    texts = {
        text: completed(bare_engine, "", text) for text in (("a bcd " * 12)[:length] for length in range(1, 70, 3))
    }
    front = start(daemon, llm=[])
    assert front.complete("llm", PROMPTS[0], 1)  # it has loaded
    training = daemon.submit(workload("steady", ("busily", str(stop))), hints=KNOWN, ballast_mib=CACHE_MIB // 2)

    def differs(prompt: str, events: int | None) -> bool:
        found = front.complete("llm", prompt, events)
        return not found or found != (texts[prompt] if events is None else texts[prompt][: len(found)])

    with ThreadPoolExecutor(3) as callers:
        for _ in range(ROUNDS):
            time.sleep(moments.expovariate(50))  # the requests' own times
            prompts = moments.choices([*texts], k=moments.choice((1, 1, 2, 3)))
            assert not any(callers.map(differs, prompts, moments.choices((None, None, 1, 5), k=len(prompts))))
    stop.touch()
    result, engine = training.result(), daemon.client.job(front.job("llm"))
    assert engine.residue_bytes == 0 and engine.switches > ROUNDS // 2 and engine.moved.in_bytes > 0
    assert [result] == bare([workload("steady", ("count", str(result["count"])))])


@pytest.mark.nightly("one more engine", stays="test_an_engine_beside_training")
def test_a_worker_of_multiprocessing_computes_with_the_engines_seat(
    eager_daemon: Daemon, start: Start, alone: Answers
) -> None:
    front = start(eager_daemon, llm=["worker"])
    assert front.complete("llm", PROMPTS[0]) == alone[PROMPTS[0]]
    info = eager_daemon.client.job(front.job("llm"))
    assert info.persistent_bytes > CACHE_MIB << 20, "its memory is that of the device"
