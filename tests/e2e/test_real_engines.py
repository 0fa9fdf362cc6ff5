"""`transformers serve`, unmodified, behind `carpool serve` and beside training, asked by OpenAI's own client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.test_engines import Front, free_port, until_it_answers
from tests.e2e.watching import until
from tests.live import WORKLOADS

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon
    from tests.live import Workload

ENGINES = Path(__file__).parents[2] / ".venv-engines" / "bin"
PATIENCE_S = 200.0
PROMPTS = [f"a question, number {number}" for number in range(4)]
WHY = "one more engine, whose imports take ten seconds"
pytestmark = [
    pytest.mark.nightly(WHY, stays="tests/e2e/test_engines.py::test_an_engine_beside_training"),
    pytest.mark.skipif(
        not (ENGINES / "python").exists(), reason="needs `make engines`: transformers and OpenAI's client"
    ),
]


def run(environment: dict[str, str], script: str, *arguments: str) -> str:
    command = [str(ENGINES / "python"), str(WORKLOADS / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def command(model: Path, port: str) -> list[str]:
    words = [str(ENGINES / "transformers"), "serve", str(model), "--port", port]
    return [*words, "--device", "cpu", "--dtype", "float32"]


@pytest.fixture(scope="module")
def model(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    run(environment, "tiny_llama.py", str(directory))
    return directory


@contextmanager
def served_alone(model: Path, environment: dict[str, str]) -> Iterator[str]:
    """The engine without Carpool: its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command(model, str(port)), env=environment, stderr=subprocess.DEVNULL) as engine:
        try:
            until_it_answers(engine, url)
            yield url
        finally:
            engine.terminate()


def asked(environment: dict[str, str], url: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(environment, "openai_client.py", url, name, *PROMPTS))
    return found


def test_transformers_serve_beside_training(
    bare: Bare, eager_daemon: Daemon, environment: dict[str, str], model: Path, workload: type[Workload], tmp_path: Path
) -> None:
    with served_alone(model, environment) as url:
        alone = asked(environment, url, str(model))["texts"]
    front = Front(eager_daemon, environment, {"tiny": {"cmd": command(model, "{port}"), "as": str(model)}})
    try:
        stop = tmp_path / "stop"
        training = eager_daemon.submit(workload("steady", ("busily", str(stop))))
        beside = asked(environment, front.url, "tiny")
        stop.touch()
        result = training.result()
        job = eager_daemon.client.job(front.job("tiny"))
        until(lambda: "safetensors" in front.engine("tiny").report.mapped_bytes, eager_daemon)
    finally:
        front.stop()
    assert beside == {"texts": alone, "models": ["tiny"]}
    assert all(streamed and whole for streamed, whole in alone)
    assert [result] == bare([workload("steady", ("count", str(result["count"])))])
    assert job.persistent_bytes > 0 and job.residue_bytes == 0, "its memory is that of the device"
