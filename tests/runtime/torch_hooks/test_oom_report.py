"""What the daemon hears when a script dies of an error about memory, and when it does not."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from carpool.runtime.torch_hooks.oom_report import DEVICE, HEAP, OTHER, lacking

if TYPE_CHECKING:
    from tests.runtime.conftest import Job

REFUSED = "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"


class OutOfMemoryError(RuntimeError):
    """Stands in for PyTorch's own."""


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    names: Any = SimpleNamespace(OutOfMemoryError=OutOfMemoryError, cuda=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch", names)
    monkeypatch.delenv("CARPOOL_CUDA_DEVICE", raising=False)


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("error", "what"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), DEVICE),
        (RuntimeError(REFUSED), DEVICE),
        (MemoryError(), HEAP),
        (RuntimeError("the word is BLOOM, or OOM"), OTHER),
        (RuntimeError("CUDA error: out of memory"), OTHER),  # not on this device
        (ValueError("CUDA out of memory. Tried to allocate 2 GiB"), OTHER),
        (SystemExit(1), OTHER),
        (None, OTHER),
    ],
)
def test_which_errors_count(error: BaseException | None, what: int) -> None:
    assert lacking(error) == what


@pytest.mark.usefixtures("torch")
def test_a_refused_allocation_of_the_host_is_none_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARPOOL_CUDA_DEVICE", "GPU-1")
    assert lacking(RuntimeError(REFUSED)) == lacking(MemoryError()) == OTHER
    assert lacking(RuntimeError("CUDA error: out of memory")) == DEVICE


def test_what_nobody_catches_is_told_whatever_hook_the_script_has(job: Job) -> None:
    script = "import sys, torch\nsys.excepthook = lambda *about: print('mine')\nraise torch.OutOfMemoryError('full')"
    done = job.run(script)
    assert (done.out, done.code) == ("mine\n", 1)
    assert done.last_words == [DEVICE]


CAUGHT = """
import os, sys, torch
try:
    raise torch.OutOfMemoryError("caught")
except RuntimeError:
    pass
if os.fork() == 0:
    raise torch.OutOfMemoryError("of a child")
os.wait()
sys.exit(3)
"""
#: As an interactive interpreter has it, which has shown the error.
SHOWN = "import sys, torch\nsys.ps1, sys.last_value = '>>> ', torch.OutOfMemoryError('shown')\nsys.exit(3)"


@pytest.mark.parametrize("script", [CAUGHT, SHOWN], ids=["caught, and of a child", "only shown"])
def test_what_a_script_does_not_die_of_is_not_told(job: Job, stand_in: dict[str, str], script: str) -> None:
    done = job.run(script, **stand_in)
    assert done.code == 3
    assert done.last_words == [OTHER]
