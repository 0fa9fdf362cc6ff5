"""GPUs that others use, or that have stopped reporting: what jobs wait for, and what people are told.

A real daemon on the stub driver, with a stub of NVIDIA's management library that says what a test wants.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carpool.core.model import MIB
from tests.cli.conftest import Cli, Forks
from tests.cli.real import stopped_afterwards
from tests.cuda.rig import STUB_UUID
from tests.devices.cuda_stub import MEMORY, Stub, stub
from tests.emulator.nvml.values import StubNvml, stubbed

__all__ = ["stub"]

PATIENCE_S = 60.0


@pytest.fixture
def nvml(stub: Stub, nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubNvml]:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent), prepend=os.pathsep)
    with stubbed(nvml_library, tmp_path / "values") as values:
        values.gpu(STUB_UUID, {"memory.total": MEMORY, "memory.used": 0, "memory.reserved": 0, "gpm.supported": None})
        yield values


@pytest.fixture
def server(stub: Stub, nvml: StubNvml, home: Path, forks: Forks) -> Iterator[Cli]:
    """A daemon with one stub GPU of 224 MiB, which it looks at ten times a second."""
    cli = Cli(home, forks)
    cli.env |= stub.environment()
    with stopped_afterwards(cli, home):
        cli.ok("up", "--device", "cuda", "--telemetry-interval", "100ms", "--set", "placement_strict=1")
        yield cli


def until(cli: Cli, words: tuple[str, ...], condition: Callable[[str], bool]) -> str:
    """What a command prints as soon as it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition(shown := cli.ok(*words)):
        assert time.monotonic() < deadline, shown
    return shown


def load_told(cli: Cli, known: bool) -> str:
    """Return when the core has heard what the device does, or that nobody knows: the API says so a moment sooner."""

    def told(shown: str) -> bool:
        loads = [event["data"] for event in map(json.loads, shown.splitlines()) if event["kind"] == "DeviceLoad"]
        return bool(loads) and (loads[-1]["load"] is not None) == known

    return until(cli, ("events", "--json", "--kind", "DeviceLoad", "-n", "1"), told)


def reason(cli: Cli, job: str) -> tuple[str, str]:
    found = cli.show(job)["reason"]
    return found["code"], found["text"]


def test_memory_that_a_foreign_process_holds_is_waited_for(server: Cli, nvml: StubNvml) -> None:
    nvml.gpu(STUB_UUID, {"memory.used": 160 * MIB, "process.compute": f"1:{160 * MIB}"})
    told = ("unmanaged memory: 160 MiB (process 1)", " 89 MiB ")  # what is left of 224, less a 32nd to grow
    until(server, ("devices",), lambda shown: all(text in shown for text in told))
    job = server.submit("--mem", "120MiB", "--", "true")
    small = server.submit("--mem", "20MiB", "--", "true")
    assert server("wait", small).returncode == 0
    why = "needs 120 MiB (120 MiB persistent), free 89 MiB on cuda0"
    why += " (128 MiB in use that Carpool has not granted, 7 MiB kept for other programs)"
    until(server, ("show", job, "--json"), lambda shown: why in shown)  # a busy machine may measure late
    until(server, ("show", job, "--why"), lambda shown: why in shown)
    nvml.gpu(STUB_UUID, {"memory.used": 0, "process.compute": ""})
    assert server("wait", job).returncode == 0


def test_a_device_that_answers_no_more_takes_nobody_beside_others(server: Cli, nvml: StubNvml, tmp_path: Path) -> None:
    gate, hangs = tmp_path / "gate", tmp_path / "hangs"
    os.mkfifo(gate)
    os.mkfifo(hangs)
    load_told(server, True)
    there = server.submit("--mem", "20MiB", "--", "sh", "-c", f"read line < {gate}")
    beside = server.submit("--mem", "20MiB", "--", "true")
    assert server("wait", beside).returncode == 0, "what it does is known, and it has room"
    nvml.everywhere({"wait.nvmlDeviceGetPowerUsage": hangs})
    with hangs.open("w"):  # opens when the daemon's call hangs
        load_told(server, False)
        assert "cuda0 not measured: no answer for " in server.ok("devices")
        job = server.submit("--mem", "20MiB", "--", "true")
        told = ("stale", "cuda0 has stopped reporting: no answer for more than 0.5 s")
        assert reason(server, job) == told
        table = server.ok("show", job, "--why")
        assert "no: stale" in table and f"cuda0: {told[1]}" in table
        nvml.everywhere({"wait.nvmlDeviceGetPowerUsage": None})
    assert server("wait", job).returncode == 0, "it answers again"
    gate.write_text("go\n")
    assert server("wait", there).returncode == 0
