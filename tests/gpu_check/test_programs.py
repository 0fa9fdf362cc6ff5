"""The benchmarks' models have the sizes that they are named for, and train; here on the CPU."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.tiers import all_but_first
from tools.gpu_check.scripts import PROGRAMS


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch
    import torch


#: Parameters in millions: of ResNet-50 and BERT-base (with the head for words) as published.
SIZES = {"resnet50": 25.557, "bert": 109.51, "gpt": 10.79, "mlp": 0.1255}


@functools.cache
def models() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("gpu_programs_models", PROGRAMS / "models" / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.MODELS  # type: ignore[no-any-return]


def test_every_model_has_a_size() -> None:
    assert models().keys() == SIZES.keys()


@pytest.mark.parametrize("name", all_but_first(sorted(SIZES, key="mlp".__ne__)))
def test_a_model_has_its_size_and_trains(name: str) -> None:
    torch.manual_seed(0)
    make, _ = models()[name]
    workload = make(torch.device("cpu"), 1)
    assert workload.parameters / 1e6 == pytest.approx(SIZES[name], rel=1e-3)
    before = [each.detach().clone() for each in workload.net.parameters()]
    assert 0 < workload.iteration().item() < 20
    assert all(each.grad is not None for each in workload.net.parameters())
    changed = [not torch.equal(old, new) for old, new in zip(before, workload.net.parameters(), strict=True)]
    assert any(changed)


def output(program: str, *arguments: str) -> str:
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


def test_iterations_are_timed() -> None:
    measured = json.loads(output("iterations.py", "mlp", "0.1", "cpu", "4"))
    assert measured["us"] > 0
    assert measured["ends"] == sorted(measured["ends"])


@pytest.mark.nightly(
    "a benchmark or measurement in its smallest form: seconds to minutes", stays="test_iterations_are_timed"
)
def test_training_gives_the_same_result_whoever_loads_the_data() -> None:
    assert output("train.py", "sgd", "cpu") == output("train.py", "loader", "cpu")


def test_what_scripts_rely_on_can_be_told_without_a_gpu_as_far_as_there_is_any() -> None:
    assert json.loads(output("stock.py", "cpu")) == {"cudnn.benchmark": True}
