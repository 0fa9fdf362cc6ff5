"""`carpool estimate` and `carpool submit --estimate`: scripts as users have them, through the whole chain."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bare_interpreter import bare_interpreter
from tests.cli.conftest import Cli
from tests.cli.standin import StandIn, as_json
from tests.tiers import FAMILY, all_but_first

pytestmark = pytest.mark.usefixtures("whole_torch")
EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"
NEVER = "import time\nwhile True: time.sleep(1)\n"
TINY = """
import torch
model = torch.nn.Linear(1024, 1024, bias=False)
update = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    model(torch.zeros(64, 1024)).sum().backward()
    update.step()
"""


def estimate(carpool: Cli, *words: str, cwd: Path) -> dict[str, Any]:
    """The answer of the rehearsal alone."""
    result = carpool("estimate", "--json", "--estimator", "faketensor", "--time-limit", "3m", *words, cwd=cwd)
    assert result.returncode in (0, 5), result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)["answers"][0]
    return answer


def script(directory: Path, text: str) -> list[str]:
    (directory / "train.py").write_text(text)
    return ["--", sys.executable, "train.py"]


@pytest.mark.nightly(FAMILY, stays="test_the_script_leaves_nothing_behind_and_reads_nothing")
@pytest.mark.parametrize("name", ["mlp", "cnn", "vae", "gpt", "resnet"])
def test_the_examples_can_be_estimated(carpool: Cli, name: str) -> None:
    found = estimate(carpool, "--", sys.executable, f"{name}.py", cwd=EXAMPLES)["prediction"]
    assert found["how"] == "8 iterations rehearsed without data"
    assert 1 << 20 < found["persistent"] < 64 << 20
    assert 8 << 20 < found["ephemeral"] < 128 << 20


@pytest.mark.parametrize(
    ("text", "says"),
    all_but_first(
        [
            ("import torch\nprint('done')\n", "without an optimizer step"),
            ("def f(:\n", "SyntaxError"),
            ("raise SystemExit('no data set')\n", "left before its first optimizer step: no data set"),
            ("import no_such_module\n", "No module named 'no_such_module'"),
            ("import torch\ntorch.zeros(5).nonzero()\n", "it cannot be rehearsed without data"),
            ("import os\nos._exit(3)\n", "exit status 3"),
        ],
    ),
)
def test_what_cannot_be_estimated_says_why(carpool: Cli, tmp_path: Path, text: str, says: str) -> None:
    error = estimate(carpool, *script(tmp_path, text), cwd=tmp_path)["error"]
    assert says in error["message"]
    assert error["hint"]


NETS = """
from torch import nn
def raises(): raise ValueError("no such data set")
class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x): raise ZeroDivisionError("in forward")
"""


@pytest.mark.parametrize(
    ("name", "says"),
    all_but_first(
        [
            ("raises", "ValueError: no such data set"),
            ("Broken", "ZeroDivisionError: in forward"),
        ]
    ),
)
def test_a_model_that_cannot_be_made_or_run(carpool: Cli, tmp_path: Path, name: str, says: str) -> None:
    """Each estimator answers for itself, with what the model said."""
    (tmp_path / "nets.py").write_text(NETS)
    shape = ["--batch-size", "2", "--input", "4", "--estimator", "horus", "--estimator", "faketensor"]
    result = carpool(
        "estimate", "--json", "--model", f"nets.py:{name}", *shape, cwd=tmp_path, env={"VIRTUAL_ENV": sys.prefix}
    )
    assert result.returncode == 5
    for answer in json.loads(result.stdout)["answers"]:
        assert answer["error"]["code"] == "cannot_estimate"
        assert says in answer["error"]["message"] and "CannotEstimate" not in answer["error"]["message"]


def test_a_script_without_end_is_ended_and_what_is_no_python_not_begun(carpool: Cli, tmp_path: Path) -> None:
    error = estimate(carpool, "--time-limit", "100ms", *script(tmp_path, NEVER), cwd=tmp_path)["error"]
    assert error["code"] == "timeout"
    assert "is not Python" in estimate(carpool, "--", "sh", "-c", "true", cwd=tmp_path)["error"]["message"]


def test_the_script_leaves_nothing_behind_and_reads_nothing(carpool: Cli, tmp_path: Path) -> None:
    text = "import sys, torch\nassert sys.stdin.read() == ''\nprint('hello')\n" + TINY
    found = estimate(carpool, *script(tmp_path, text), cwd=tmp_path)["prediction"]
    assert found["how"] == "8 iterations rehearsed without data"
    assert found["persistent"] == 4 * 1024 * 1024 + 4 * 64 * 1024
    assert 0 < found["ephemeral"] < 16 << 20
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_table_for_people(carpool: Cli, standin: StandIn, tmp_path: Path) -> None:
    run = {"persistent": 3 << 20, "ephemeral": 1 << 20}
    standin.reactions["POST /v1/history"] = as_json({"runs": [run, run]})
    shown = carpool.ok("estimate", "--estimator", "history", *script(tmp_path, TINY), cwd=tmp_path)
    header, row = shown.splitlines()
    assert header.split() == ["ESTIMATOR", "P", "E", "TOTAL", "RANGE", "HOW"]
    assert row.startswith("history") and "3 MiB" in row and "2 earlier runs" in row
    assert standin.requests[0].body == {"argv": [sys.executable, "train.py"], "cwd": str(tmp_path)}


@pytest.mark.parametrize(
    "words",
    [
        ["estimate"],
        ["estimate", "--model", "a:b", "true"],
        ["estimate", "--model", "a:b", "--input", "3xx4"],
    ],
)
def test_wrong_command_lines(carpool: Cli, words: list[str]) -> None:
    assert carpool(*words).returncode == 2


def test_an_interpreter_without_torch_is_named(carpool: Cli, tmp_path: Path) -> None:
    python = bare_interpreter(tmp_path / "empty")
    (tmp_path / "train.py").write_text(TINY)
    error = estimate(carpool, "--", python, "train.py", cwd=tmp_path)["error"]
    assert error["message"] == f"{python} lacks torch"
    assert error["hint"] == f"{python} -m pip install torch; or activate the environment of the job"
