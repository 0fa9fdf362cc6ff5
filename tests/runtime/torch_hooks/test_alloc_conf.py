"""Expandable segments are turned off where Carpool has to move the memory."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from carpool.runtime.torch_hooks.alloc_conf import FUNCTIONS, fix_segments, watch

if TYPE_CHECKING:
    from tests.runtime.conftest import Job


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("expandable_segments:True", "expandable_segments:False"),
        ("max_split_size_mb:64,expandable_segments : True", "max_split_size_mb:64,expandable_segments : False"),
        ("expandable_segments:False", "expandable_segments:False"),
        ("not_expandable_segments:True", "not_expandable_segments:True"),
        ("garbage_collection_threshold:0.8", "garbage_collection_threshold:0.8"),
    ],
)
@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_other_settings_stay(capsys: pytest.CaptureFixture[str], name: str, given: str, expected: str) -> None:
    environ = {name: given, "OTHER": "expandable_segments:True"}
    fix_segments(environ)
    assert environ == {name: expected, "OTHER": "expandable_segments:True"}
    assert capsys.readouterr().err.count("\n") == (given != expected)


def test_both_names_are_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    environ = dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), "expandable_segments:True")
    fix_segments(environ)
    assert set(environ.values()) == {"expandable_segments:False"}
    assert capsys.readouterr().err == (
        "carpool: warning: expandable_segments in PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF is turned off: "
        "Carpool cannot move such memory\n"
    )


SCRIPT = """
import os
os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
import torch
"""
FAKE_TORCH = "import os; print(os.environ['PYTORCH_CUDA_ALLOC_CONF'], os.environ['PYTORCH_ALLOC_CONF'])\n"


@pytest.mark.parametrize("device", ["", "GPU-1"])
def test_it_is_done_before_torch_reads_it_and_only_on_cuda_devices(job: Job, device: str) -> None:
    """Also for what the script sets itself."""
    (job.directory / "torch.py").write_text(FAKE_TORCH)
    asked = "expandable_segments:True"
    done = job.run(SCRIPT, CARPOOL_CUDA_DEVICE=device, PYTORCH_CUDA_ALLOC_CONF=asked, CP_ANSWER="1")
    expected = asked.replace("True", "False") if device else asked
    assert done.out == f"{expected} {expected}\n"
    assert done.err.count("carpool: warning:") == bool(device)


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> tuple[SimpleNamespace, list[str]]:
    """Those of PyTorch, and what they have been told."""
    told: list[str] = []

    def start() -> None:
        told.append(os.environ["PYTORCH_CUDA_ALLOC_CONF"])

    def tell(settings: str) -> None:
        told.append(settings)

    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "")
    made = SimpleNamespace(_cuda_init=start, **{name: tell for name in FUNCTIONS if name != "_cuda_init"}, other=tell)
    watch(made)
    return made, told


WARNING = "carpool: warning: expandable_segments in {} is turned off: Carpool cannot move such memory\n"


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "_cuda_init"])
def test_calls_turn_nothing_on(
    functions: tuple[SimpleNamespace, list[str]], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    made, told = functions
    for settings in ("max_split_size_mb:64,expandable_segments:True", "expandable_segments:False"):
        getattr(made, name)(settings)
    assert told == ["max_split_size_mb:64,expandable_segments:False", "expandable_segments:False"]
    assert capsys.readouterr().err == WARNING.format("the allocator's settings")


@pytest.mark.parametrize("name", ["_cuda_init", "_accelerator_setAllocatorSettings"])
def test_variables_count_when_the_allocator_reads_them(
    functions: tuple[SimpleNamespace, list[str]], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    made, _ = functions
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    getattr(made, name)(*[""] * (name != "_cuda_init"))
    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:False"
    assert capsys.readouterr().err == WARNING.format("PYTORCH_CUDA_ALLOC_CONF")


def test_nothing_else_is_changed(functions: tuple[SimpleNamespace, list[str]]) -> None:
    made, told = functions
    made.other("expandable_segments:True")
    assert told == ["expandable_segments:True"]


def test_the_names_are_those_of_this_pytorch() -> None:
    """Otherwise settings would go unseen."""
    import torch

    known = {name for name in dir(torch._C) if name.lower().replace("_", "").endswith("setallocatorsettings")}
    assert known <= {*FUNCTIONS}
