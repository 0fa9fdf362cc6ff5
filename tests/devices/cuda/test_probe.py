"""Trying what sharing a GPU needs, on the stub driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.devices.base import DeviceError
from carpool.devices.cuda import probe
from tests.devices.cuda_stub import MEMORY, Stub
from tests.tiers import all_but_first


def findings() -> list[dict[str, object]]:
    done = subprocess.run([sys.executable, "-P", "-m", probe.__name__], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_everything_works_on_the_stub(stub: Stub) -> None:
    found = findings()
    assert all(finding["ok"] for finding in found), found
    assert [str(finding["name"]).removeprefix("GPU 0: ") for finding in found] == [
        "device agent",
        "making, exporting and clearing memory",
        "copying from pinned memory",
        "a context beside another process's",
        "importing memory whose maker has ended",
        "copying to pinned memory",
        "the memory's content",
        "waiting for a value in host memory",
        "checkpoint calls",
    ]
    assert str(found[0]["text"]).endswith(f", {MEMORY >> 20} MiB")


def test_every_gpu_is_tried(stub: Stub) -> None:
    stub.devices(MEMORY, MEMORY)
    names = [str(finding["name"]).split(":")[0] for finding in findings()]
    assert names == ["GPU 0"] * 9 + ["GPU 1"] * 9


@pytest.mark.parametrize(
    ("function", "result", "step", "advice"),
    all_but_first(
        [
            ("cuMemCreate", 2, "making, exporting and clearing memory", "full"),
            ("cuMemExportToShareableHandle", 801, "making, exporting and clearing memory", "WSL"),
            ("cuMemImportFromShareableHandle", 801, "copying from pinned memory", "WSL"),
            ("cuMemSetAccess", 801, "making, exporting and clearing memory", "newer driver"),
            ("cuMemHostRegister", 1, "copying from pinned memory", "ulimit"),
            ("cuDevicePrimaryCtxRetain", 999, "making, exporting and clearing memory", "full"),
        ],
        stay=2,
    ),
)
def test_what_fails_is_named_with_the_drivers_error(
    stub: Stub, function: str, result: int, step: str, advice: str
) -> None:
    stub.fail(f"{function}={result}")
    *before, last = findings()
    assert all(finding["ok"] for finding in before)
    assert (last["name"], last["ok"], last["needed"]) == (f"GPU 0: {step}", False, True)
    assert str(last["text"]).startswith(f"{function}: CUDA_ERROR_") and advice in str(last["advice"])


@pytest.mark.parametrize(
    ("mode", "step"),
    [
        ("EXCLUSIVE_PROCESS", "a context beside another process's"),
        ("PROHIBITED", "making, exporting and clearing memory"),
    ],
)
def test_a_compute_mode_that_keeps_processes_out_is_named(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, mode: str, step: str
) -> None:
    monkeypatch.setenv("EMULATOR_COMPUTE_MODE", mode)
    last = findings()[-1]
    assert (last["name"], last["ok"], last["needed"]) == (f"GPU 0: {step}", False, True)
    assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in str(last["text"])
    assert f"compute mode is {mode}" in str(last["advice"]) and "`nvidia-smi -c 0`" in str(last["advice"])


def test_content_that_does_not_arrive_is_noticed() -> None:
    probe._same(b"abc", b"abc")
    with pytest.raises(DeviceError, match="something else"):
        probe._same(b"abd", b"abc")


def test_what_carpool_can_do_without_is_no_obstacle(stub: Stub) -> None:
    stub.fail("cuStreamWaitValue32=801")
    missing = [finding for finding in findings() if not finding["ok"]]
    assert [(finding["name"], finding["needed"]) for finding in missing] == [
        ("GPU 0: waiting for a value in host memory", False)
    ]


@pytest.mark.parametrize(
    ("variables", "text", "advice"),
    [
        (
            {"EMULATOR_HIDE": "cuCheckpointProcessLock,cuCheckpointProcessRestore"},
            "this driver has no cuCheckpointProcessLock, cuCheckpointProcessRestore",
            "",
        ),
        ({"EMULATOR_CUDA": "12080"}, "this driver is of CUDA 12.8", "needs driver 575"),
        (
            {"EMULATOR_DRIVER": "610.57"},
            "driver 610.57 has been seen to end processes that it was to suspend",
            "",
        ),
    ],
    ids=["no calls", "calls of no use", "calls that end what they suspend"],
)
def test_a_driver_that_suspends_nothing_is_named(
    stub: Stub, nvml_library: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], text: str, advice: str
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent), prepend=os.pathsep)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    *_, last = findings()
    assert (last["name"], last["ok"], last["needed"]) == ("GPU 0: checkpoint calls", False, False)
    assert last["text"] == text and advice in str(last["advice"])


@pytest.mark.parametrize(
    ("result", "ok", "text", "advice"),
    [(999, False, "cuInit: CUDA_ERROR_UNKNOWN", "nvidia-smi"), (100, True, "none: cuInit: CUDA_ERROR_NO_DEVICE", "")],
    ids=["broken", "without a GPU"],
)
def test_a_driver_that_does_not_start(stub: Stub, result: int, ok: bool, text: str, advice: str) -> None:
    stub.fail(f"cuInit={result}")
    (found,) = findings()
    assert found["ok"] is ok and str(found["text"]).startswith(text)
    assert advice in str(found["advice"])


def test_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcuda.so.1").touch()  # found first, and no library
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (found,) = findings()
    assert found["ok"] and str(found["text"]).startswith("none: this machine has no NVIDIA driver")
