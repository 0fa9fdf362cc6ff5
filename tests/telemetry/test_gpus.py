"""GPUs through the stub NVML: every quantity, every way in which it may be missing, and coming back."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import pynvml
import pytest

from carpool.telemetry.gpm import SECOND_SAMPLE, UNSUPPORTED
from carpool.telemetry.gpus import REOPEN_US, GpuReaders
from carpool.telemetry.samples import QUANTITIES, CapabilityLevel, ProcessMemory, Sample, Unmeasurable
from tests.emulator.nvml.values import GIB, StubNvml

SECOND = 1_000_000
NOT_SUPPORTED, NO_FUNCTION, NO_PERMISSION, LOST, UNINITIALIZED, DRIVER_NOT_LOADED, UNKNOWN = 3, 13, 4, 15, 1, 9, 999


@pytest.fixture
def gpus(stub: StubNvml) -> Iterator[GpuReaders]:
    stub.gpu()
    gpus = GpuReaders()
    yield gpus
    stub.everywhere({"fail.nvmlInitWithFlags": None})
    gpus.close()


def second_sample(stub: StubNvml, gpus: GpuReaders, uuid: str = "GPU-1") -> Sample:
    """The sample after another one, a second later."""
    gpus.sample(uuid, SECOND)
    stub.gpu(uuid, clock_ms=2000)
    return gpus.sample(uuid, 2 * SECOND)


def why(gpus: GpuReaders, now: int = 9 * SECOND) -> str:
    """The reason for which nothing is measured."""
    with pytest.raises(Unmeasurable) as failure:
        gpus.sample("GPU-1", now)
    return str(failure.value)


def test_everything_that_a_gpu_can_tell(stub: StubNvml, gpus: GpuReaders) -> None:
    sample = second_sample(stub, gpus)
    assert sample == Sample(
        taken_us=2 * SECOND,
        level=CapabilityLevel.GPM,
        total_bytes=80 * GIB,
        used_bytes=10 * GIB,
        free_bytes=69 * GIB,
        reserved_bytes=GIB,
        processes=(),
        busy_ppm=370_000,
        memory_busy_ppm=120_000,
        sm_active_ppm=635_000,
        sm_occupancy_ppm=412_500,
        dram_active_ppm=220_000,
        power_mw=312_400,
        power_limit_mw=700_000,
        energy_mj=123_456_789_012,
        temperature_c=61,
        clock_mhz=1755,
        clock_limit_mhz=1980,
        throttled=(),
        mig=False,
        mps=False,
    )


def test_gpm_needs_a_second_sample(stub: StubNvml, gpus: GpuReaders) -> None:
    """Where devices are measured every 100 ms each round is a little late or early."""
    first = gpus.sample("GPU-1", SECOND)
    assert first.level is CapabilityLevel.GPM and first.sm_active_ppm is None
    assert first.missing["sm_active_ppm"] == SECOND_SAMPLE
    stub.gpu(clock_ms=1050)
    early = gpus.sample("GPU-1", SECOND + 50_000)  # NVML is not even asked: it would refuse
    assert early.sm_active_ppm is None and "100 ms" in early.missing["sm_active_ppm"]
    stub.gpu(clock_ms=1120)
    assert gpus.sample("GPU-1", SECOND + 99_000).sm_active_ppm == 635_000  # since the first one


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_what_is_no_number_is_missing(stub: StubNvml, gpus: GpuReaders, value: str) -> None:
    stub.gpu("GPU-1", {"gpm.3": value, "gpm.10": None})
    sample = second_sample(stub, gpus)
    assert (sample.sm_active_ppm, sample.sm_occupancy_ppm, sample.dram_active_ppm) == (635_000, None, None)
    assert sample.missing == {"sm_occupancy_ppm": "GPM: no number", "dram_active_ppm": "GPM: Not Supported"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpm.supported": None}, UNSUPPORTED),
        ({"fail.nvmlGpmQueryDeviceSupport": NO_FUNCTION}, "nvmlGpmQueryDeviceSupport: Function Not Found"),
        ({"fail.nvmlGpmQueryDeviceSupport": NO_PERMISSION}, "no permission"),
        ({"fail.nvmlGpmSampleGet": UNKNOWN}, "nvmlGpmSampleGet: Unknown Error"),
    ],
)
def test_without_gpm_the_level_is_basic_and_says_why(
    stub: StubNvml, gpus: GpuReaders, changes: dict[str, object], reason: str
) -> None:
    stub.gpu("GPU-1", changes)
    sample = second_sample(stub, gpus)
    assert (sample.level, sample.reason) == (CapabilityLevel.BASIC, reason)
    assert sample.missing == dict.fromkeys(("sm_active_ppm", "sm_occupancy_ppm", "dram_active_ppm"), reason)
    assert sample.busy_ppm == 370_000


def test_gpm_comes_back_after_a_failure(stub: StubNvml, gpus: GpuReaders) -> None:
    second_sample(stub, gpus)
    stub.gpu("GPU-1", {"fail.nvmlGpmSampleGet": UNKNOWN})
    assert gpus.sample("GPU-1", 3 * SECOND).level is CapabilityLevel.BASIC
    stub.gpu("GPU-1", {"fail.nvmlGpmSampleGet": None, "clock_ms": 4000})
    assert gpus.sample("GPU-1", 4 * SECOND).missing["sm_active_ppm"] == SECOND_SAMPLE
    stub.gpu(clock_ms=5000)
    assert gpus.sample("GPU-1", 5 * SECOND).sm_active_ppm == 635_000


@pytest.mark.parametrize(
    ("removed", "lost"),
    [
        ("memory.total", {"total_bytes", "used_bytes", "free_bytes", "reserved_bytes"}),
        ("utilization.gpu", {"busy_ppm", "memory_busy_ppm"}),
        ("power.usage", {"power_mw"}),
        ("power.limit", {"power_limit_mw"}),
        ("energy", {"energy_mj"}),
        ("temperature", {"temperature_c"}),
        ("clock.sm", {"clock_mhz", "clock_limit_mhz"}),
        ("reasons", {"throttled"}),
        ("mig.mode", {"mig"}),
    ],
)
def test_each_quantity_may_be_missing_alone(stub: StubNvml, gpus: GpuReaders, removed: str, lost: set[str]) -> None:
    stub.gpu("GPU-1", {removed: None})
    sample = second_sample(stub, gpus)
    absent = {name for name in QUANTITIES if getattr(sample, name) is None}
    absent -= {"foreign_bytes", "moved_bytes_per_s", "jobs_busy_ppm"}  # the reader adds them
    assert absent == set(sample.missing) == lost
    assert all("Not Supported" in reason for reason in sample.missing.values())


def test_an_old_driver_is_asked_by_the_old_names(stub: StubNvml, gpus: GpuReaders) -> None:
    new = [
        *(f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")),
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceIsMigDeviceHandle",
    ]
    stub.everywhere({f"fail.{name}": NO_FUNCTION for name in new})
    stub.gpu("GPU-1", {"process.compute": "10:4096", "reasons": 0x04})
    sample = second_sample(stub, gpus)
    assert sample.missing == {"reserved_bytes": "this driver does not say"}
    assert (sample.used_bytes, sample.temperature_c, sample.throttled) == (11 * GIB, 61, ("power cap",))
    assert sample.processes == (ProcessMemory(10, 4096),)


def test_why_a_gpu_is_slowed_down(stub: StubNvml, gpus: GpuReaders) -> None:
    stub.gpu("GPU-1", {"reasons": hex(0x04 | 0x40 | 0x1 | 0x2 | 0x100)})
    assert gpus.sample("GPU-1", SECOND).throttled == ("power cap", "temperature (hardware)")


def test_processes_are_counted_once(stub: StubNvml, gpus: GpuReaders) -> None:
    lists = {
        "process.compute": "10:4096,11:100,12:?,13:50:1,13:70:2",
        "process.graphics": "11:300,14:5",
        "process.mps": "10:4096,12:7",
    }
    stub.gpu("GPU-1", lists)
    found = {process.pid: process.used_bytes for process in gpus.sample("GPU-1", SECOND).processes or ()}
    assert found == {10: 4096, 11: 300, 12: 7, 13: 120, 14: 5}


def test_without_the_list_of_compute_processes_there_are_none_at_all(stub: StubNvml, gpus: GpuReaders) -> None:
    names = [f"fail.nvmlDeviceGetComputeRunningProcesses_v{version}" for version in (2, 3)]
    stub.gpu("GPU-1", dict.fromkeys(names, NO_PERMISSION))
    sample = gpus.sample("GPU-1", SECOND)
    assert sample.processes is None and sample.missing["processes"] == "no permission"


def test_clients_of_an_mps_server_are_recognised(stub: StubNvml, gpus: GpuReaders) -> None:
    assert gpus.sample("GPU-1", SECOND).mps is False
    stub.gpu("GPU-1", {"process.mps": "12:7"})
    assert gpus.sample("GPU-1", 2 * SECOND).mps is True
    names = [f"fail.nvmlDeviceGetMPSComputeRunningProcesses_v{version}" for version in (2, 3)]
    stub.gpu("GPU-1", dict.fromkeys(names, NO_FUNCTION))
    old = gpus.sample("GPU-1", 3 * SECOND)
    assert old.mps is None and "mps" in old.missing


def test_a_mig_device_is_measured_through_its_gpu(stub: StubNvml, gpus: GpuReaders) -> None:
    stub.gpu("GPU-1", {"mig.mode": 1, "gpm.2.3": 80, "gpm.3.3": 40, "gpm.10.3": 20})
    stub.gpu("MIG-7", {"mig.parent": "GPU-1", "mig.instance": 3, "mig.mode": None, "utilization.gpu": None})
    gpus.sample("MIG-7", SECOND)
    stub.gpu("GPU-1", clock_ms=2000)
    sample = gpus.sample("MIG-7", 2 * SECOND)
    assert (sample.level, sample.sm_active_ppm, sample.busy_ppm) == (CapabilityLevel.GPM, 800_000, None)
    assert sample.mig is True and "mig" not in sample.missing
    assert gpus.sample("GPU-1", SECOND).mig is True


def test_a_gpu_that_nvml_does_not_know(stub: StubNvml, gpus: GpuReaders) -> None:
    stub.without("GPU-1")
    assert why(gpus) == "NVML does not find the GPU GPU-1 (nvmlDeviceGetHandleByUUID: Not Found)"
    stub.gpu()
    assert gpus.sample("GPU-1", SECOND).level is CapabilityLevel.GPM


def test_no_driver_at_first(stub: StubNvml, gpus: GpuReaders) -> None:
    stub.everywhere({"fail.nvmlInitWithFlags": DRIVER_NOT_LOADED})
    assert why(gpus) == "NVIDIA's kernel module is not loaded"
    stub.everywhere({"fail.nvmlInitWithFlags": None})
    assert gpus.sample("GPU-1", SECOND).level is CapabilityLevel.GPM


def test_no_library(stub: StubNvml, gpus: GpuReaders, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_name: str) -> ctypes.CDLL:
        raise OSError("no such library")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", none)
    assert why(gpus) == "NVIDIA's driver is not installed here: there is no libnvidia-ml.so.1"
    monkeypatch.setattr(pynvml, "nvmlLib", stub.native)
    assert gpus.sample("GPU-1", SECOND).level is CapabilityLevel.GPM


def test_no_package(gpus: GpuReaders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    advice = f"{sys.executable} -m pip install nvidia-ml-py"
    assert why(gpus) == f"the Python package nvidia-ml-py is not installed: {advice}"


def test_nvml_that_stops_working_is_opened_again(stub: StubNvml, gpus: GpuReaders) -> None:
    second_sample(stub, gpus)
    stub.everywhere({"fail.nvmlDeviceGetPowerUsage": UNINITIALIZED})
    assert "Uninitialized" in why(gpus)
    assert stub.native.stub_users() == 0
    stub.everywhere({"fail.nvmlDeviceGetPowerUsage": None})
    assert gpus.sample("GPU-1", 3 * SECOND).power_mw == 312_400
    assert stub.native.stub_users() == 1


def test_a_lost_gpu_leaves_the_others_alone_for_a_while(stub: StubNvml, gpus: GpuReaders) -> None:
    stub.gpu("GPU-2")
    second_sample(stub, gpus, "GPU-2")
    stub.gpu("GPU-1", {"fail.nvmlDeviceGetUtilizationRates": LOST})
    assert "fallen off the bus" in why(gpus, 2 * SECOND)
    stub.gpu("GPU-2", clock_ms=3000)
    assert gpus.sample("GPU-2", 3 * SECOND).sm_active_ppm == 635_000
    assert "fallen off the bus" in why(gpus, 2 * SECOND + REOPEN_US)
    assert stub.native.stub_users() == 0  # a GPU that was reset is seen only after that
    stub.gpu("GPU-1", {"fail.nvmlDeviceGetUtilizationRates": None})
    assert gpus.sample("GPU-1", 40 * SECOND).busy_ppm == 370_000


def test_a_gpu_that_says_nothing_is_not_measured(stub: StubNvml, gpus: GpuReaders) -> None:
    functions = ("MemoryInfo_v2", "MemoryInfo", "UtilizationRates", "PowerUsage", "EnforcedPowerLimit")
    functions += ("TotalEnergyConsumption", "TemperatureV", "Temperature", "ClockInfo", "MigMode")
    functions += ("CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
    functions += tuple(f"{kind}RunningProcesses_v{version}" for kind in ("Compute", "MPSCompute") for version in (3, 2))
    stub.gpu("GPU-1", {f"fail.nvmlDeviceGet{name}": UNKNOWN for name in functions} | {"gpm.supported": None})
    assert why(gpus) == "nvmlDeviceGetMemoryInfo: Unknown Error"


def test_what_some_processes_hold_together(stub: StubNvml, gpus: GpuReaders) -> None:
    stub.gpu("GPU-1", {"process.compute": f"10:{GIB},20:{2 * GIB},30:"})
    assert gpus.held("GPU-1", [10, 20], SECOND) == 3 * GIB
    assert gpus.held("GPU-1", [], SECOND) == 0
    assert gpus.held("GPU-1", [10, 40], SECOND) is None, "it does not know one of them"
    assert gpus.held("GPU-2", [10], SECOND) is None


def busy_of(sample: Sample) -> dict[int, int | None]:
    return {process.pid: process.busy_us for process in sample.processes or ()}


def test_how_long_the_gpu_computed_for_each_process(stub: StubNvml, gpus: GpuReaders) -> None:
    stub.gpu(
        changes={"process.compute": "100:1,200:1,300:1", "process.busy": "100:25,300:4294967295", "clock_ms": 1000}
    )
    assert busy_of(gpus.sample("GPU-1", 5 * SECOND)) == {100: None, 200: None, 300: None}
    stub.gpu(clock_ms=3000)
    sample = gpus.sample("GPU-1", 7 * SECOND)  # what is no percentage says nothing
    assert busy_of(sample) == {100: SECOND // 2, 200: 0, 300: 0}
    assert busy_of(gpus.sample("GPU-1", 8 * SECOND)) == {100: 0, 200: 0, 300: 0}, "samples count once"


def test_a_driver_without_samples_of_processes(stub: StubNvml, gpus: GpuReaders) -> None:
    stub.gpu(changes={"process.compute": "100:1"})
    assert [busy_of(gpus.sample("GPU-1", now * SECOND)) for now in (1, 2)] == [{100: None}, {100: None}]
