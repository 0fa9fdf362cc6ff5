"""Jobs, estimates and models in an interpreter that has PyTorch and safetensors, and nothing of what Carpool needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.protocol.api import SubmitRequest
from carpool.protocol.models import ModelRequest
from carpool.runtime.launch import plain_environment
from tests.bare_interpreter import bare_interpreter
from tests.e2e.fronts import ROOT, Front, alone, ask
from tests.live import Running

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Daemons


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global save_file, skeleton, hosted
    from safetensors.torch import save_file

    from carpool.serve.model import skeleton
    from tests.e2e import hosted


STEPS = 20
TRAIN = f"""
import importlib.util, json, sys
import torch

model = torch.nn.Linear(256, 256)
optimizer = torch.optim.Adam(model.parameters())
for _ in range({STEPS}):
    optimizer.zero_grad()
    model(torch.ones(8, 256)).sum().backward()
    optimizer.step()
if len(sys.argv) > 1:
    foreign = [name for name in ("msgspec", "aiohttp", "click", "numpy") if importlib.util.find_spec(name)]
    with open(sys.argv[1], "w") as out:
        json.dump({{"foreign": foreign}}, out)
"""


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bare_interpreter(tmp_path_factory.mktemp("lean"), "torch", "safetensors")


@pytest.fixture(scope="module")
def daemon(module_daemons: Daemons) -> Daemon:
    """Its own: the one of the whole run would begin here, after this module's count of processes."""
    return module_daemons()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


@pytest.mark.nightly("a rarer way into a state that another test reaches", stays="test_a_model")
@pytest.mark.parametrize("module", ["carpool.serve.worker", "carpool.serve.prepare.__main__"])
def test_what_serves_models_can_be_imported(lean: str, module: str) -> None:
    """A worker that cannot start is started again and again: this says at once why."""
    command = [lean, "-c", f"import {module}"]
    result = subprocess.run(command, env=plain_environment({}), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_job(daemon: Daemon, environment: dict[str, str], lean: str, script: Path) -> None:
    out = script.with_name("out")
    request = SubmitRequest([lean, str(script), str(out)], str(script.parent), environment)
    job = Running(daemon, daemon.client.submit(request), out)
    assert job.result() == {"foreign": []}
    assert job.info().iterations == STEPS  # the hooks of Carpool have counted them


@pytest.mark.usefixtures("whole_torch")
def test_an_estimate(lean: str, script: Path) -> None:
    carpool = [sys.executable, "-m", "carpool.cli", "estimate", "--json", "--time-limit=3m"]
    chosen = ["--estimator=faketensor", "--estimator=horus"]
    command = [*carpool, *chosen, "--", lean, str(script)]
    result = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    answers = json.loads(result.stdout)["answers"]
    assert [bool(answer.get("prediction")) for answer in answers] == [True, True], answers


def test_a_model(daemon: Daemon, environment: dict[str, str], lean: str, tmp_path: Path) -> None:
    weights = tmp_path / "small.safetensors"
    save_file(skeleton.build(hosted.small, 0, weights=True).state_dict(), weights)
    env = environment | {hosted.STAGE: str(tmp_path), "PYTHONPATH": str(ROOT)}
    request = ModelRequest("tests.e2e.hosted:small", lean, str(ROOT), env, str(weights), max_batch=1)
    daemon.client.add_model("lean", request)
    front = Front(daemon, ["lean"], cache=tmp_path)
    try:
        assert front.lines["lean"]["event"] == "ready", front.lines
        with front.client() as client:
            assert ask(client, "lean", 3) == alone("small", [3])[0]
        front.stop()
    finally:
        front.close()
        daemon.client.remove_model("lean")


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches",
    stays="tests/serve/prepare/test_subprocess.py::test_processes_that_prepare_nothing",
)
def test_what_it_lacks_is_named(daemon: Daemon, environment: dict[str, str], tmp_path: Path) -> None:
    """No PyTorch; no safetensors, for a model with a file of weights.  Without one nothing is lacking."""
    nothing, torch_only = (bare_interpreter(tmp_path / name, *has) for name, has in (("no", ()), ("some", ("torch",))))
    weights = tmp_path / "small.safetensors"
    save_file(skeleton.build(hosted.small, 0, weights=True).state_dict(), weights)
    env = environment | {hosted.STAGE: str(tmp_path), "PYTHONPATH": str(ROOT)}
    models = {"nothing": (nothing, None), "torch_only": (torch_only, str(weights)), "plain": (torch_only, None)}
    for name, (python, file) in models.items():
        request = ModelRequest("tests.e2e.hosted:small", python, str(ROOT), env, file, max_batch=1)
        daemon.client.add_model(name, request)
    front = Front(daemon, list(models), cache=tmp_path)
    try:
        said = {name: line.get("reason") for name, line in front.lines.items()}
        front.stop()
    finally:
        front.close()
        for name in models:
            daemon.client.remove_model(name)
    assert said == {
        "nothing": f"{nothing} lacks torch: {nothing} -m pip install torch",
        "torch_only": f"{torch_only} lacks safetensors: {torch_only} -m pip install safetensors",
        "plain": None,
    }
