"""`carpool doctor` and GPUs: none, one that works, one that does not, one whose driver hangs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carpool.cli.base import doctor_checks as module
from carpool.cli.base.doctor_checks import gpu_checks
from carpool.protocol.api import ControlGroups
from tests.devices.cuda_stub import Stub, stub
from tests.emulator.nvml.values import StubNvml, stubbed

__all__ = ["stub"]


@pytest.fixture
def no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "libcuda.so.1").touch()  # found first, and no library
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    yield


def script(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(path.parent), prepend=os.pathsep)
    monkeypatch.setattr(module, "PROBE", path.stem)


def test_without_a_gpu_there_is_one_line_and_no_problem(no_driver: None) -> None:
    (check,) = gpu_checks()
    assert (check.name, check.ok, check.advice) == ("GPU", True, "")
    assert check.found.startswith("none")


def test_a_gpu_that_works(stub: Stub) -> None:
    checks = list(gpu_checks())
    assert len(checks) == 10 and all(check.ok for check in checks), checks
    assert checks[-1].found.startswith("missing; without it memory of other programs on this GPU is not seen")


@pytest.fixture
def nvml(stub: Stub, nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubNvml]:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent), prepend=os.pathsep)
    with stubbed(nvml_library, tmp_path / "values") as values:
        yield values


def telemetry() -> dict[str, str]:
    """What is found of it, by the names of the checks."""
    return {check.name: check.found for check in gpu_checks() if check.name.startswith("telemetry")}


def test_how_much_of_a_gpu_is_measured(nvml: StubNvml) -> None:
    nvml.gpu("GPU-1")
    nvml.gpu("GPU-2", {"gpm.supported": None, "process.mps": "12:7"})
    counters, basic = telemetry().values()
    assert counters.endswith("the counters of the multiprocessors")
    assert "(basic): this GPU has no GPM counters" in basic and basic.endswith("used through an MPS server")


def test_instances_of_a_partitioned_gpu_are_named(nvml: StubNvml) -> None:
    nvml.gpu("GPU-1", {"mig.mode": 1})
    for number in (1, 2):
        nvml.gpu(f"MIG-{number}", {"mig.parent": "GPU-1", "mig.instance": number})
    assert list(telemetry()) == [
        "telemetry of NVML's GPU 0",
        "telemetry of --device MIG-1",
        "telemetry of --device MIG-2",
    ]


def test_a_gpu_that_cannot_be_shared_is_a_problem(stub: Stub) -> None:
    stub.fail("cuMemExportToShareableHandle=801")
    (failed,) = (check for check in gpu_checks() if not check.ok)
    assert "CUDA_ERROR_NOT_SUPPORTED" in failed.found and failed.advice


def test_what_carpool_can_do_without_is_said_and_no_problem(stub: Stub) -> None:
    stub.fail("cuStreamWaitValue32=801")
    (waiting,) = (check for check in gpu_checks() if "waiting" in check.name)
    assert waiting.ok and waiting.found.startswith("missing") and "CUDA_ERROR_NOT_SUPPORTED" in waiting.found


def test_a_driver_that_crashes_or_hangs_does_not_take_the_command_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "crashing_probe.py", "import os; os.abort()", monkeypatch)
    (crashed,) = gpu_checks()
    assert not crashed.ok and "status -6" in crashed.found and crashed.advice
    script(tmp_path / "hanging_probe.py", "import time; time.sleep(600)", monkeypatch)
    (hung,) = gpu_checks(patience_s=0.5)
    assert not hung.ok and "does not answer" in hung.found


def test_doctor_tells_about_the_gpu(stub: Stub, carpool: Any) -> None:
    report = json.loads(carpool("doctor", "--json").stdout)
    assert "GPU 0: device agent" in {check["name"] for check in report["checks"]}


def test_limits_that_do_not_hold_are_problems() -> None:
    groups = ControlGroups("jobs have none of their own", ["memory in limits.toml does not hold: nothing is mounted"])
    found = list(module._control_groups(groups))
    assert [(check.name, check.ok) for check in found] == [("control groups", True), ("control groups", False)]
    assert "docs/settings.md#control-groups" in found[1].advice
    assert list(module._control_groups(ControlGroups())) == []
