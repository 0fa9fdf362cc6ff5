"""Daemons on an emulated GPU, for jobs with PyTorch's CUDA build."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from carpool.core.model import MIB
from tests import emulated
from tests.cuda.pytorch.rig import Alone, CudaDaemon, CudaScript, unexpected_calls
from tests.cuda.rig import Daemons
from tests.devices.cuda_stub import Stub
from tests.live import BareRuns, python_path
from tools.emulator.environment import VENV, libraries_of

MEMORY = 512 * MIB


class OnCpu(BareRuns):
    """Results of scripts on the CPU, computed by the same operators."""

    def __call__(self, script: str) -> object:
        return self.result(CudaScript.named(script))


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """A GPU on which PyTorch computes; nothing may call what it does not have, and its memory is free in the end."""
    emulated.need()
    made = Stub(libraries_of(VENV), monkeypatch)
    made.devices(MEMORY)
    calls = unexpected_calls()
    monkeypatch.setenv("EMULATOR_RESULTS", emulated.RESULTS)
    monkeypatch.setenv("EMULATOR_UNEXPECTED", str(calls))
    yield made
    names = calls.read_text().split() if calls.exists() else []
    calls.unlink(missing_ok=True)
    try:
        made.wait_until_free()
        assert names == []
    finally:
        made.remove()


@pytest.fixture
def daemons(stub: Stub) -> Iterator[Daemons]:
    made = Daemons(stub, emulated.clean() | {"PYTHONPATH": python_path()}, CudaDaemon)
    yield made
    made.close()
    stub.wait_until_free()


@pytest.fixture(scope="session")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCpu]:
    runner = OnCpu(emulated.clean() | {"DEVICE": "cpu"}, tmp_path_factory.mktemp("cpu"))
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    return Alone(tmp_path_factory.mktemp("alone"))
