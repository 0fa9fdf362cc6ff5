"""Servers of language models, unmodified, behind `carpool serve` and beside training, asked by OpenAI's own client."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.test_engines import Front, free_port, until_it_answers
from tests.e2e.watching import MIB, until
from tests.live import WORKLOADS

if TYPE_CHECKING:
    from carpool.protocol.api import JobInfo
    from carpool.protocol.engines import WeightsFormat
    from tests.e2e.conftest import Bare, Daemon, Daemons
    from tests.live import Workload

ROOT = Path(__file__).parents[2]
BY_HAND = ROOT / "build" / "engines"
ENGINES = ROOT / ".venv-engines" / "bin"
#: Writes llama.cpp's files of weights.
GGUF = BY_HAND / "llama.cpp" / "source" / "llama.cpp" / "gguf-py"
#: vLLM imports for a minute of a processor's time.
PATIENCE_S = 800.0
PROMPTS = [f"a question, number {number}" for number in range(4)]
WHY = "one more engine, whose imports take ten seconds"
NO_HUB = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


@dataclass(frozen=True)
class Kind:
    """A server, there once ``target`` has made ``place``.  ``known_as``: its own name for a model."""

    place: Path
    target: str
    program: str
    words: str
    known_as: str = "tiny"
    maps: WeightsFormat | None = None  # weights that it leaves in their file

    def command(self, model: Path, port: str) -> list[str]:
        return [str(self.place / self.program), *(word.format(model=model, port=port) for word in self.words.split())]

    def table(self, model: Path) -> dict[str, Any]:
        known_as = self.known_as.format(model=model)
        return {"cmd": self.command(model, "{port}"), "as": known_as, "start_timeout": f"{PATIENCE_S:.0f}s"}


MAPPED = Kind(
    ENGINES.parent,
    "make engines",
    "bin/transformers",
    "serve {model} --port {port} --device cpu --dtype float32",
    known_as="{model}",
    maps="safetensors",
)
KINDS = {
    "transformers": MAPPED,
    "transformers-converts": replace(MAPPED, words=MAPPED.words.replace("float32", "bfloat16"), maps=None),
    "vllm": Kind(
        BY_HAND / "vllm",
        "make test-engines",
        "bin/python",  # this build's own command looks for the package "vllm" and fails
        "-m vllm.entrypoints.openai.api_server --model {model} --port {port} --served-model-name tiny "
        "--dtype float32 --max-model-len 512 --enforce-eager --kv-cache-memory-bytes 64M",
    ),
    "llama.cpp": Kind(
        BY_HAND / "llama.cpp",
        "make test-engines",
        "build/bin/llama-server",
        "-m {model}/model.gguf --alias tiny --port {port} --load-mode none -c 1024 -np 2 -t 1",
    ),
}
pytestmark = [
    pytest.mark.nightly(WHY, stays="tests/e2e/test_engines.py::test_an_engine_beside_training"),
    pytest.mark.skipif(not (ENGINES / "python").exists(), reason="needs `make engines`: OpenAI's client"),
]


def param(name: str) -> Any:
    missing = not (KINDS[name].place / ".stamp").exists()
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason=f"needs `{KINDS[name].target}`: {name}"))


@pytest.fixture(scope="module", params=map(param, KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def variables(environment: dict[str, str]) -> dict[str, str]:
    return environment | NO_HUB


def run(environment: dict[str, str], script: str, *arguments: str) -> str:
    command = [str(ENGINES / "python"), str(WORKLOADS / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def model(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    if GGUF.exists():
        run(variables | {"PYTHONPATH": str(GGUF)}, "tiny_llama.py", str(directory), "--gguf")
    else:
        run(variables, "tiny_llama.py", str(directory))
    return directory


@contextmanager
def served_alone(kind: Kind, model: Path, environment: dict[str, str]) -> Iterator[str]:
    """The engine without Carpool: its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(kind.command(model, str(port)), env=environment, stderr=subprocess.DEVNULL) as engine:
        try:
            until_it_answers(engine, f"{url}/health")
            yield url
        finally:
            engine.terminate()


def asked(environment: dict[str, str], url: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(environment, "openai_client.py", url, name, *PROMPTS))
    return found


Texts = list[list[str]]


@pytest.fixture(scope="module")
def alone(kind: Kind, model: Path, variables: dict[str, str]) -> Texts:
    """Texts without Carpool, streamed and whole."""
    with served_alone(kind, model, variables) as url:
        texts: Texts = asked(variables, url, kind.known_as.format(model=model))["texts"]
    assert all(streamed and whole for streamed, whole in texts)
    return texts


def different(one: Sequence[object], other: Sequence[object]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


Record = Callable[[str, object], None]


def record_memory(record: Record, job: JobInfo) -> None:
    assert job.persistent_bytes > 0 and job.residue_bytes == 0, "its memory is that of the device"
    record("MiB on the device", round(job.persistent_bytes / MIB))


def test_an_engine_beside_training(
    bare: Bare,
    eager_daemon: Daemon,
    variables: dict[str, str],
    kind: Kind,
    model: Path,
    alone: Texts,
    workload: type[Workload],
    tmp_path: Path,
    record_property: Record,
) -> None:
    front, begun_s = Front(eager_daemon, variables, {"tiny": kind.table(model)}), time.monotonic()
    try:
        stop = tmp_path / "stop"
        training = eager_daemon.submit(workload("steady", ("busily", str(stop))))
        until(lambda: training.info().iterations, eager_daemon)
        beside = asked(variables, front.url, "tiny")
        stop.touch()
        result = training.result()
        job = eager_daemon.client.job(front.job("tiny"))
        if kind.maps is not None:
            until(lambda: kind.maps in front.engine("tiny").report.mapped_bytes, eager_daemon)
        log = eager_daemon.home / "jobs" / str(job.id) / "log"
        assert "carpool: warning" not in log.read_text()
    finally:
        front.stop()
    record_property("texts different", f"{different(beside['texts'], alone)} of {len(alone)}, streamed and whole")
    record_property("steps of training", result["count"])
    record_property("seconds, starts included", round(time.monotonic() - begun_s))
    assert beside == {"texts": alone, "models": ["tiny"]}
    assert [result] == bare([workload("steady", ("count", str(result["count"])))])
    record_memory(record_property, job)


def test_two_engines_that_do_not_fit_together(
    daemons: Daemons, variables: dict[str, str], kind: Kind, model: Path, alone: Texts, record_property: Record
) -> None:
    """They need 1.5 times the device's memory; of one that maps its weights little is there to be moved."""
    daemon = daemons("host:512MiB")
    front = Front(daemon, variables, {"one": kind.table(model)})
    try:
        assert asked(variables, front.url, "one")["texts"] == alone
        need_bytes = daemon.client.job(front.job("one")).persistent_bytes
    finally:
        front.stop()
    daemon = daemons(f"host:{-(-2 * need_bytes * 2 // 3 // MIB)}MiB")
    front = Front(daemon, variables, {name: kind.table(model) for name in ("one", "other")})
    try:
        texts = [asked(variables, front.url, name)["texts"] for name in ("one", "other", "one")]
        jobs = [daemon.client.job(front.job(name)) for name in ("one", "other")]
    finally:
        front.stop()
    record_property("texts different at 1.5 times the memory", sum(different(each, alone) for each in texts))
    assert texts == [alone] * 3
    assert all(job.residue_bytes == 0 and (kind.maps or job.moved.out_bytes > 0) for job in jobs)


def test_a_stream_that_is_abandoned_ends(
    eager_daemon: Daemon, variables: dict[str, str], kind: Kind, model: Path, workload: type[Workload]
) -> None:
    """What waits has the device, and the engine does not want it again."""
    front = Front(eager_daemon, variables, {"tiny": kind.table(model)})
    asks = {"model": "tiny", "prompt": "without an end", "max_tokens": 400, "stream": True}
    request = urllib.request.Request(
        f"{front.url}/v1/completions", json.dumps(asks).encode(), {"Content-Type": "application/json"}
    )
    try:
        with closing(urllib.request.urlopen(request, timeout=PATIENCE_S)) as stream:
            assert stream.readline().startswith(b"data:")
        until(lambda: front.engine("tiny").report.in_flight == 0, eager_daemon)
        job = front.job("tiny")
        eager_daemon.submit(workload("steady", ("count", "20"))).result()
        until(lambda: not eager_daemon.client.job(job).holds_turn, eager_daemon)
    finally:
        front.stop()
