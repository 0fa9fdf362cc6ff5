"""The stub NVML has the ABI that nvidia-ml-py expects, and does what its head says."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.emulator.harness import Worker, stub_environment
from tests.emulator.nvml.values import StubNvml, stubbed

#: Structures by their names in the stub.
STRUCTURES = {
    "nvmlMemory_t": pynvml.c_nvmlMemory_t,
    "nvmlMemory_v2_t": pynvml.c_nvmlMemory_v2_t,
    "nvmlProcessInfo_t": pynvml.c_nvmlProcessInfo_t,
    "nvmlUtilization_t": pynvml.c_nvmlUtilization_t,
    "nvmlProcessUtilizationSample_t": pynvml.c_nvmlProcessUtilizationSample_t,
    "nvmlTemperature_t": pynvml.c_nvmlTemperature_v1_t,
    "nvmlGpmMetricInfo_t": pynvml.c_metricInfo_t,
    "nvmlGpmMetric_t": pynvml.c_nvmlGpmMetric_t,
    "nvmlGpmMetricsGet_t": pynvml.c_nvmlGpmMetricsGet_t,
    "nvmlGpmSupport_t": pynvml.c_nvmlGpmSupport_t,
}


@pytest.fixture
def stub(nvml_library: Path, tmp_path: Path) -> Iterator[StubNvml]:
    with stubbed(nvml_library, tmp_path / "values") as stub:
        pynvml.nvmlInit()
        yield stub
        stub.everywhere({"fail.nvmlShutdown": None})
        pynvml.nvmlShutdown()


def layout(stub: StubNvml, name: str) -> tuple[int, int]:
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    assert stub.native.stub_layout(name.encode(), ctypes.byref(offset), ctypes.byref(size)), f"no {name} in the stub"
    return offset.value, size.value


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_lie_as_nvidia_declares_them(stub: StubNvml, name: str) -> None:
    structure = STRUCTURES[name]
    assert layout(stub, name) == (0, ctypes.sizeof(structure))
    for field, *_ in structure._fields_:
        described = getattr(structure, field)
        assert layout(stub, f"{name}.{field}") == (described.offset, described.size), field


def test_versions_of_structures_are_checked(stub: StubNvml) -> None:
    stub.gpu()
    handle = pynvml.nvmlDeviceGetHandleByUUID("GPU-1")
    assert pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2).reserved == 1 << 30
    with pytest.raises(pynvml.NVMLError_ArgumentVersionMismatch):
        pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2 + 1)


def test_the_first_memory_call_counts_reserved_as_used(stub: StubNvml) -> None:
    stub.gpu()
    info = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID("GPU-1"))
    assert (info.used >> 30, info.free >> 30, info.total >> 30) == (11, 69, 80)


def test_missing_values_are_not_supported_and_errors_come_on_demand(stub: StubNvml) -> None:
    stub.gpu("GPU-1", {"power.usage": None, "fail.nvmlDeviceGetTemperature": 15})
    stub.gpu("GPU-2")
    first, second = (pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in ("GPU-1", "GPU-2"))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetPowerUsage(first)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetTemperature(first, pynvml.NVML_TEMPERATURE_GPU)
    assert pynvml.nvmlDeviceGetTemperature(second, pynvml.NVML_TEMPERATURE_GPU) == 61
    assert pynvml.nvmlDeviceGetPowerUsage(second) == 312_400
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-3")


def test_nothing_works_before_initialization(nvml_library: Path, tmp_path: Path) -> None:
    with stubbed(nvml_library, tmp_path / "values"), pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_processes_of_both_kinds_of_number(stub: StubNvml) -> None:
    stub.gpu("GPU-1", {"process.compute": "10:4096,11:?:3"})
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByUUID("GPU-1"))
    assert [(process.pid, process.usedGpuMemory) for process in found] == [(10, 4096), (11, None)]
    assert found[1].gpuInstanceId == 3


class OldProcessInfo(ctypes.Structure):
    """The first form of nvmlProcessInfo_t, which nvidia-ml-py no longer declares."""

    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]


def test_processes_in_their_first_form(stub: StubNvml) -> None:
    stub.gpu("GPU-1", {"process.compute": "10:4096,11:8192"})
    handle, count, found = pynvml.nvmlDeviceGetHandleByUUID("GPU-1"), ctypes.c_uint(1), (OldProcessInfo * 2)()
    ask = stub.native.nvmlDeviceGetComputeRunningProcesses
    assert ask(handle, ctypes.byref(count), found) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert ask(handle, ctypes.byref(count), found) == pynvml.NVML_SUCCESS
    assert [(process.pid, process.usedGpuMemory) for process in found] == [(10, 4096), (11, 8192)]


def test_devices_by_their_place_on_the_bus(stub: StubNvml) -> None:
    stub.gpu("GPU-1")
    stub.gpu("GPU-2")
    for bus in ("00000000:02:00.0", "0000:02:00.0"):
        assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByPciBusId(bus)) == "GPU-2"
    for bus in ("0000:00:00.0", "0000:03:00.0"):
        with pytest.raises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetHandleByPciBusId(bus)


def test_what_a_device_is(stub: StubNvml) -> None:
    stub.gpu("GPU-1", {"name": None, "compute.capability": None})
    first, second = (pynvml.nvmlDeviceGetHandleByUUID(stub.gpu(uuid)) for uuid in ("GPU-1", "GPU-2"))
    assert [pynvml.nvmlDeviceGetIndex(device) for device in (first, second)] == [0, 1]
    assert pynvml.nvmlDeviceGetName(second) == "NVIDIA H100 80GB HBM3"
    assert pynvml.nvmlDeviceGetCudaComputeCapability(second) == (9, 0)
    short = ctypes.create_string_buffer(6)
    assert stub.native.nvmlDeviceGetName(second, short, 6) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    for asked in pynvml.nvmlDeviceGetName, pynvml.nvmlDeviceGetCudaComputeCapability:
        with pytest.raises(pynvml.NVMLError_NotSupported):
            asked(first)


def test_an_instance_has_no_index_among_the_gpus(stub: StubNvml) -> None:
    stub.gpu("GPU-1")
    instance = pynvml.nvmlDeviceGetHandleByUUID(stub.gpu("MIG-1", {"mig.parent": "GPU-1"}))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetIndex(instance)


def test_devices_reach_each_other_without_links(stub: StubNvml) -> None:
    first, second = (pynvml.nvmlDeviceGetHandleByUUID(stub.gpu(uuid)) for uuid in ("GPU-1", "GPU-2"))
    read, nvlink = 0, 2  # nvidia-ml-py calls the first one (0,)
    assert pynvml.nvmlDeviceGetP2PStatus(first, second, read) == pynvml.NVML_P2P_STATUS_OK
    assert pynvml.nvmlDeviceGetP2PStatus(first, second, nvlink) == pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(first, 0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetNvLinkRemotePciInfo(first, 0)


def test_a_device_without_a_fabric_says_so(stub: StubNvml) -> None:
    device = pynvml.nvmlDeviceGetHandleByUUID(stub.gpu("GPU-1"))
    fabric = pynvml.c_nvmlGpuFabricInfo_v2_t()
    fabric.state = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
    assert pynvml.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(fabric)) == pynvml.NVML_SUCCESS
    assert fabric.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
    fabric.version = 1
    with pytest.raises(pynvml.NVMLError):
        pynvml.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(fabric))


def test_every_way_to_begin(stub: StubNvml) -> None:
    for begin in (stub.native.nvmlInit, stub.native.nvmlInit_v2):
        users = stub.native.stub_users()
        assert begin() == pynvml.NVML_SUCCESS and stub.native.stub_users() == users + 1
        pynvml.nvmlShutdown()
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == 13000


@pytest.fixture
def machine(stub: StubNvml, stub_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of processes on the emulated machine, for which the stub speaks where it has no values."""
    machine = stub_environment(stub_driver, tmp_path / "state", "64MiB,32MiB")
    for name in ("EMULATOR_STATE", "EMULATOR_DEVICES"):
        monkeypatch.setenv(name, machine[name])
    monkeypatch.delenv("EMULATOR_NVML")
    return machine


def test_without_values_the_emulated_machine_answers(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert pynvml.nvmlDeviceGetCount() == 2
    with Worker(machine, "begin(1); data = ok(driver.cuMemAlloc(4 << 20))") as worker:
        uuid = worker.run("'GPU-' + str(__import__('uuid').UUID(bytes=ok(driver.cuDeviceGetUuid(1)).bytes))")
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        assert pynvml.nvmlDeviceGetIndex(handle) == 1
        assert pynvml.nvmlDeviceGetName(handle) == worker.run(
            "ok(driver.cuDeviceGetName(100, 1)).split(b'\\0')[0].decode()"
        )
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)
        assert (info.total >> 20, info.used >> 20) == (32, 4)
        assert pynvml.nvmlDeviceGetComputeMode(handle) == pynvml.NVML_COMPUTEMODE_DEFAULT
        monkeypatch.setenv("EMULATOR_COMPUTE_MODE", "EXCLUSIVE_PROCESS")
        assert pynvml.nvmlDeviceGetComputeMode(handle) == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
        holders = [(each.pid, each.usedGpuMemory) for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        assert holders == [(worker.process.pid, 4 << 20)]
        worker.kill()
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).used == 0
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle) == []


@pytest.mark.parametrize("changed", ["", "16=132,75=9,76=2"])
def test_the_emulated_machine_computes_as_its_driver_says(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    monkeypatch.setenv("EMULATOR_ATTRIBUTES", changed)
    with Worker(machine | {"EMULATOR_ATTRIBUTES": changed}) as worker:
        of_driver = worker.run("[ok(driver.cuDeviceGetAttribute(driver.CUdevice_attribute(i), 0)) for i in (75, 76)]")
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert [*pynvml.nvmlDeviceGetCudaComputeCapability(handle)] == of_driver == ([9, 2] if changed else [8, 0])


@pytest.mark.parametrize("counted", [False, True])
def test_imported_memory_counts_for_its_process_or_not(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    if counted:
        monkeypatch.setenv("EMULATOR_NVML_IMPORTS", "1")
    with Worker(machine) as maker, Worker(machine) as user:
        maker.run("handle = created(8 << 20); share(exported(handle))")
        user.run("at = mapped(imported(fds[0]), 8 << 20); data = ok(driver.cuMemAlloc(2 << 20))", fds=maker.fds)
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        held = {each.pid: each.usedGpuMemory >> 20 for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        assert held == {maker.process.pid: 8, user.process.pid: 10 if counted else 2}
        assert pynvml.nvmlDeviceGetMemoryInfo(handle).used >> 20 == 10


def test_gpm_needs_two_samples_100_ms_apart(stub: StubNvml) -> None:
    handle = pynvml.nvmlDeviceGetHandleByUUID(stub.gpu())
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = 1, 1
    request.metrics[0].metricId = 2
    request.sample1, request.sample2 = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(handle, request.sample1)
    for later_ms, works in ((99, False), (100, True)):
        stub.gpu(clock_ms=1000 + later_ms)
        pynvml.nvmlGpmSampleGet(handle, request.sample2)
        if works:
            assert pynvml.nvmlGpmMetricsGet(request).metrics[0].value == 63.5
        else:
            with pytest.raises(pynvml.NVMLError_InvalidArgument):
                pynvml.nvmlGpmMetricsGet(request)
    for sample in (request.sample1, request.sample2):
        pynvml.nvmlGpmSampleFree(sample)


def test_a_function_waits_on_demand(stub: StubNvml, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    handle = pynvml.nvmlDeviceGetHandleByUUID(stub.gpu())
    stub.gpu("GPU-1", {"wait.nvmlDeviceGetPowerUsage": fifo})
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(pynvml.nvmlDeviceGetPowerUsage(handle)))
    thread.start()
    end = os.open(fifo, os.O_WRONLY)  # returns when the stub is there
    assert thread.is_alive() and answers == []
    os.close(end)
    thread.join(10)
    assert answers == [312_400]
