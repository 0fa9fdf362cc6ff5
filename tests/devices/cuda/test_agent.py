"""The device agent on the stub driver: it may die, hang or find nothing; and another daemon takes over what it made."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest

from carpool.daemon.sigstop import watchdog
from carpool.devices.base import DeviceError, Extent
from carpool.devices.cuda.agent_link import ANSWER_S, START_S, AgentLink
from carpool.devices.cuda.device import CudaDevice
from carpool.devices.cuda.driver import DriverError
from tests.devices.cuda_contract import AsJob, agent_pid, make_device
from tests.devices.cuda_stub import CONTEXT, LOOKED, MEMORY, Stub
from tests.devices.device_contract import CAPACITY, OWNER, PATTERN, UNIT, duplicates, use_store
from tests.tiers import all_but_first

JOB = 7


def test_a_killed_agent_costs_nothing(device: CudaDevice, job: AsJob) -> None:
    device.open_lane(1, UNIT)
    job.use(device.lane_files(1), UNIT)
    first = agent_pid(device)
    os.kill(first, signal.SIGKILL)
    device.resize_lane(1, 2 * UNIT)
    assert agent_pid(device) != first
    assert job.use(device.lane_files(1), 2 * UNIT) == PATTERN * UNIT + bytes(UNIT)


def test_an_agent_goes_on_with_stores_and_extents_of_the_one_before(device: CudaDevice) -> None:
    bank = device.take_bank(OWNER, 0, None)
    device.grow_bank(bank, UNIT)
    use_store(device.store_fd(JOB), UNIT)
    device.copy_in(bank, [(0, UNIT)], JOB)()
    os.kill(agent_pid(device), signal.SIGKILL)
    os.pwrite(device.store_fd(JOB), bytes(UNIT), 0)
    device.copy_out(bank, [(0, UNIT)], JOB)()
    assert os.pread(device.store_fd(JOB), UNIT, 0) == PATTERN * UNIT


def test_memory_outlives_the_device_that_made_it(device: CudaDevice, job: AsJob, stub: Stub) -> None:
    device.open_lane(1, UNIT)
    job.use(device.lane_files(1), UNIT)
    kept = duplicates(device.lane_files(1))
    device.close()
    assert stub.used() == UNIT + LOOKED  # the job's, which is an agent here
    assert job.use(kept, UNIT) == PATTERN * UNIT
    os.close(kept[0].fd)


def test_an_agent_ends_with_its_device(stub: Stub) -> None:
    device = make_device()
    device.open_lane(1, UNIT)
    pid = agent_pid(device)
    device.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(DeviceError, match="closed"):
        device.open_lane(2, UNIT)


@pytest.mark.parametrize(
    "failure", all_but_first(["cuMemsetD8Async=700", "cuStreamSynchronize=719", "cuStreamSynchronize=801"])
)
def test_an_agent_whose_context_is_spoiled_is_replaced(stub: Stub, failure: str) -> None:
    stub.fail(f"{failure}@2")
    with closing(make_device()) as device:
        device.open_lane(1, UNIT)
        spoiled = agent_pid(device)
        with pytest.raises(DriverError, match=failure.split("=")[0]):
            device.open_lane(2, UNIT)
        device.open_lane(2, UNIT)
        assert agent_pid(device) != spoiled
        assert stub.used() == 2 * UNIT + CONTEXT


@pytest.mark.parametrize("ends", [True, False])
def test_an_agent_that_hangs_is_not_waited_for(stub: Stub, monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    """Nor is one that no signal ends, as one that sleeps in the driver's kernel module (state D)."""
    monkeypatch.setattr("carpool.devices.cuda.agent_link.END_S", 0.05)
    if not ends:
        monkeypatch.setattr("subprocess.Popen.kill", lambda process: None)
    with closing(CudaDevice("cuda0", CAPACITY, AgentLink(0))) as device:
        device.open_lane(1, UNIT)
        pid = agent_pid(device)
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(device._link, "_answer_s", 0.2)
        with pytest.raises(DeviceError, match="no answer"):
            device.open_lane(2, UNIT)
        monkeypatch.setattr(device._link, "_answer_s", ANSWER_S)
        device.open_lane(2, UNIT)
        assert device.used_bytes() == 2 * UNIT
    if not ends:
        os.kill(pid, signal.SIGKILL)


def test_an_agent_has_the_lease_for_answers_and_more_time_to_start(stub: Stub) -> None:
    with closing(CudaDevice("cuda0", CAPACITY, AgentLink(0))) as device:
        patience = []
        receive = device._link._receive
        device._link._receive = lambda patience_s: patience.append(patience_s) or receive(patience_s)
        device.open_lane(1, UNIT)
    assert patience == [START_S, ANSWER_S] == [30.0, watchdog.LEASE_S]


def test_a_gpu_that_there_is_not(stub: Stub) -> None:
    with closing(CudaDevice("cuda9", CAPACITY, AgentLink(9))) as device:
        for _ in range(2):
            with pytest.raises(DriverError, match="cuDeviceGet: CUDA_ERROR_INVALID_DEVICE"):
                device.open_lane(1, UNIT)


def test_an_impossible_capacity() -> None:
    with pytest.raises(DeviceError, match="capacity"):
        CudaDevice("cuda0", 0, AgentLink.__new__(AgentLink))


# Another daemon


def test_memory_of_another_gpu_or_size_is_not_taken_for_a_bank(stub: Stub) -> None:
    stub.devices(MEMORY, MEMORY)
    with closing(make_device()) as device, closing(CudaDevice("cuda1", CAPACITY, AgentLink(1))) as other:
        bank = other.take_bank(OWNER, 0, None)
        other.grow_bank(bank, 2 * UNIT)
        with pytest.raises(DeviceError, match="memory of device 1"):
            device.check_bank(bank, OWNER, other.bank_files(bank))
        other.check_bank(bank, OWNER, other.bank_files(bank))
        (file,) = other.bank_files(bank)
        with pytest.raises(DeviceError, match="other sizes"):
            other.check_bank(bank, OWNER, [Extent(file.fd, UNIT)])
        with (
            closing(CudaDevice("cuda1", CAPACITY, AgentLink(1))) as successor,
            pytest.raises(DeviceError, match="cuMemMap"),
        ):
            successor.check_bank(bank, OWNER, [Extent(file.fd, 4 * UNIT)])


def test_the_longest_of_what_shims_bring_is_the_lane(device: CudaDevice, job: AsJob) -> None:
    """An earlier daemon may have died between telling one shim and telling the next."""
    device.open_lane(1, UNIT)
    device.resize_lane(1, 2 * UNIT)
    files = device.lane_files(1)
    with closing(make_device()) as successor:
        for part in (files[:1], files, files[:1]):
            successor.adopt_lane(1, duplicates(part))
        assert successor.lane_size(1) == successor.used_bytes() == 2 * UNIT


def test_an_agent_of_another_version_is_not_used(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carpool.devices.cuda.messages.VERSION", 1)
    with closing(make_device()) as device, pytest.raises(DeviceError, match="another version"):
        device.open_lane(1, UNIT)
