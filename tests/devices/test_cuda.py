"""The CUDA device on the stub driver: the contract, and what only a GPU with an agent can do."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import closing
from pathlib import Path

import pytest

from carpool.core.model import GIB, MIB
from carpool.devices.base import BankId, DeviceError, Extent
from carpool.devices.cuda import messages
from carpool.devices.cuda.device import CudaDevice
from carpool.devices.cuda.driver import DriverError
from carpool.devices.cuda.extents import SMALLEST, largest
from carpool.devices.cuda.pinned import PIECE
from tests.daemon.daemon_harness import until
from tests.devices.bank_contract import BankContract
from tests.devices.cuda_contract import AsJob, OnCuda, agent_pid, make_device
from tests.devices.cuda_stub import CONTEXT, LOOKED, MEMORY, Stub
from tests.devices.device_contract import ANOTHER, OWNER, PATTERN, UNIT, MemoryContract, use_store
from tests.emulator.harness import Worker

JOB = 7


class OnStub(OnCuda):
    @pytest.fixture
    def _use_driver(self, stub: Stub) -> None:
        """The stub."""


class TestCuda(OnStub, MemoryContract):
    """What a GPU's memory is like."""


@pytest.mark.nightly(
    "the same on the other kind of device", stays="tests/devices/test_host.py::TestHost::test_which_bank_a_job_gets"
)
class TestBanks(OnStub, BankContract):
    """Which banks there are is decided by the same code for all kinds of device."""


def grown(device: CudaDevice, *sizes: int) -> BankId:
    """A bank that a job holds, after it has grown to one size after the other."""
    bank = device.take_bank(OWNER, 0, None)
    for size in sizes:
        device.grow_bank(bank, size)
    return bank


def filled(device: CudaDevice, job: AsJob, size: int) -> BankId:
    """A bank none of whose blocks is zero."""
    bank = grown(device, size)
    job.use(device.bank_files(bank), size)
    return bank


# Memory


def test_lanes_have_sizes_of_the_driver_and_a_large_one_can_be_made_smaller(device: CudaDevice) -> None:
    device.open_lane(1, 5 * SMALLEST)
    device.resize_lane(1, SMALLEST + 1)
    assert device.used_bytes() == device.lane_size(1) == 2 * SMALLEST
    device.close_lane(1)
    device.open_lane(1, UNIT + 1)
    assert device.lane_size(1) == device.used_bytes() == 2 * UNIT


def test_a_bank_that_is_cut_gives_whole_extents_back(device: CudaDevice) -> None:
    bank = grown(device, 2 * SMALLEST)
    device.cut_bank(bank, SMALLEST + 1)
    assert device.used_bytes() == 2 * SMALLEST
    device.cut_bank(bank, SMALLEST)
    assert device.used_bytes() == SMALLEST
    device.cut_bank(bank, SMALLEST + UNIT)  # it is smaller already
    device.cut_bank(bank, 0)
    assert device.bank_files(bank) == () and device.used_bytes() == 0


def test_weights_are_in_one_piece_that_free_banks_give_way_to(device: CudaDevice, stub: Stub) -> None:
    bank = grown(device, 5 * SMALLEST)
    device.free_bank(bank)
    memory = device.make_weights(4 * SMALLEST + 1)
    assert memory.size == 4 * SMALLEST + UNIT and device.used_bytes() <= MEMORY - CONTEXT
    with pytest.raises(DriverError):
        device.make_weights(4 * SMALLEST)
    used = device.used_bytes()
    device.drop_weights(memory)
    assert device.used_bytes() == used - memory.size
    device.close_banks(OWNER)
    stub.wait_until_free()


def test_weights_of_an_earlier_daemon_are_taken_over(device: CudaDevice, stub: Stub) -> None:
    with closing(make_device()) as before:
        kept = Extent(os.dup(before.make_weights(UNIT).fd), UNIT)
    device.adopt_weights(kept)
    assert device.used_bytes() == UNIT
    device.drop_weights(kept)
    stub.wait_until_free()
    other = Extent(os.memfd_create("something else"), UNIT)
    with pytest.raises(DeviceError):
        device.adopt_weights(other)
    os.close(other.fd)


@pytest.mark.parametrize(
    ("capacity", "expected"), [(MEMORY, SMALLEST), (80 * GIB, 640 * MIB), (80 * GIB - 1, 640 * MIB)]
)
def test_an_extent_is_a_small_part_of_the_device(capacity: int, expected: int) -> None:
    assert largest(capacity, UNIT) == expected


def test_a_lane_that_grows_in_many_little_steps_is_in_a_bounded_number_of_pieces(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carpool.devices.cuda.extents._MANY", 3)
    device.open_lane(1, 0)
    for size in range(1, 9):
        device.resize_lane(1, size * UNIT)
    assert [file.size for file in device.lane_files(1)] == [UNIT] * 3 + [SMALLEST]


def test_what_was_kept_for_offloads_can_be_given_back(device: CudaDevice, job: AsJob) -> None:
    device.open_lane(1, UNIT)
    bank = filled(device, job, 2 * UNIT)
    device.copy_out(bank, [(0, 2 * UNIT)], JOB)()
    assert device.stored_bytes() == PIECE  # which is pinned as a whole
    work = device.empty_store(JOB)
    assert "cuda0-store7" not in agent_maps(device)
    work()
    assert device.stored_bytes() == 0
    device.copy_out(bank, [(0, UNIT)], JOB)()
    assert device.stored_bytes() == PIECE


def test_free_banks_give_all_they_have(device: CudaDevice) -> None:
    kept, free = (grown(device, 2 * SMALLEST) for _ in range(2))
    device.free_bank(free)
    device.give_way()
    assert device.used_bytes() == 2 * SMALLEST and len(device.bank_files(kept)) == 2


def test_room_is_what_the_driver_has_at_this_moment(device: CudaDevice, stub: Stub) -> None:
    device.open_lane(1, 4 * SMALLEST)
    room = (MEMORY - CONTEXT - 4 * SMALLEST) // UNIT * UNIT
    assert device.has_room(room)
    assert not device.has_room(room + 1)
    assert device.used_bytes() == 4 * SMALLEST


def test_memory_of_a_killed_process_can_be_had_when_the_driver_has_closed_it(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMULATOR_CLOSE_MS", "1000")
    with closing(make_device()) as device:
        with Worker(dict(os.environ), f"begin(); data = ok(driver.cuMemAlloc({MEMORY // 2}))") as other:
            other.kill()
        assert not device.has_room(MEMORY // 2 + UNIT)
        with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
            device.open_lane(1, MEMORY // 2 + UNIT)
        assert device.used_bytes() == 0
        while not device.has_room(MEMORY // 2 + UNIT):
            pass
        device.open_lane(1, MEMORY // 2 + UNIT)
        assert device.lane_size(1) >= MEMORY // 2 + UNIT


def test_free_banks_that_give_way_are_heard_of(device: CudaDevice) -> None:
    heard: list[int] = []
    device.hear_bank_cuts(heard.append)
    first, second = (device.take_bank(OWNER, 0, None) for _ in range(2))
    for bank in (first, second):
        device.grow_bank(bank, MEMORY // 3)
        device.free_bank(bank)
    device.open_lane(1, MEMORY // 2)
    assert heard == [first]


def test_memory_can_be_used_without_a_driver_that_knows_it(device: CudaDevice, job: AsJob) -> None:
    """What the descriptor stands for is the memory itself: in the stub it is a file."""
    device.open_lane(1, UNIT)
    job.use(device.lane_files(1), UNIT)
    assert use_store(device.lane_files(1)[0].fd, UNIT) == PATTERN * UNIT


def test_an_idle_device_holds_no_memory(device: CudaDevice, stub: Stub) -> None:
    device._link.ready()
    assert stub.used() == 0, "nor has it a context"
    device.open_lane(1, UNIT)
    bank = grown(device, UNIT)
    device.copy_out(bank, [(0, UNIT)], JOB)()
    assert stub.used() == 2 * UNIT + LOOKED
    device.close_lane(1)
    device.close_banks(OWNER)
    device.drop_store(JOB)
    stub.wait_until_free()
    device.open_lane(1, UNIT)
    assert stub.used() == UNIT + CONTEXT


def test_what_cannot_be_had_changes_nothing(device: CudaDevice, stub: Stub) -> None:
    device.open_lane(1, UNIT)
    bank = device.take_bank(OWNER, 0, None)
    for call in (
        lambda: device.open_lane(2, MEMORY),
        lambda: device.resize_lane(1, MEMORY),
        lambda: device.grow_bank(bank, MEMORY),
    ):
        with pytest.raises(DriverError, match="cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY"):
            call()
    assert (device.used_bytes(), stub.used()) == (UNIT, UNIT + CONTEXT)
    device.open_lane(2, UNIT)


def test_free_banks_give_way(device: CudaDevice) -> None:
    held, free = (device.take_bank(owner, 0, None) for owner in (OWNER, ANOTHER))
    for bank in (held, free):
        device.grow_bank(bank, MEMORY // 3)
    device.free_bank(free)
    device.open_lane(1, MEMORY // 2)
    assert sum(file.size for file in device.bank_files(held)) >= MEMORY // 3
    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        device.resize_lane(1, MEMORY)


STEPS = [
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemAddressReserve",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemsetD8Async",
    "cuDevicePrimaryCtxRetain",
    "cuStreamCreate",
]


@pytest.mark.parametrize("function", STEPS)
def test_a_step_that_fails_leaves_nothing_behind(stub: Stub, function: str) -> None:
    stub.fail(f"{function}=801@1")
    with closing(make_device()) as device:
        with pytest.raises(DriverError, match=f"{function}: CUDA_ERROR_NOT_SUPPORTED"):
            device.open_lane(1, UNIT)
        device.open_lane(1, UNIT)
        assert stub.used() == device.used_bytes() + CONTEXT == UNIT + CONTEXT


# Copies


def test_a_bank_goes_to_its_store_and_comes_back_in_another_bank(device: CudaDevice, job: AsJob) -> None:
    bank, other = grown(device, UNIT, 2 * UNIT, SMALLEST + 8 * UNIT), grown(device)  # the first one in several extents
    content = bytes(range(256)) * (SMALLEST // 256 + 8 * UNIT // 256)
    os.pwrite(device.store_fd(JOB), content, 0)
    device.copy_in(bank, [(0, len(content))], JOB)()
    os.pwrite(device.store_fd(JOB), bytes(len(content)), 0)
    ranges = [(MIB, 3 * UNIT + 5), (SMALLEST - 3, SMALLEST + 3 * MIB)]
    device.copy_out(bank, ranges, JOB)()
    found = os.pread(device.store_fd(JOB), len(content), 0)
    expected = bytearray(len(content))
    for begin, end in ranges:
        expected[begin:end] = content[begin:end]
    assert found == expected
    device.grow_bank(other, UNIT)
    device.copy_in(other, [(MIB, UNIT)], JOB)()
    assert job.use(device.bank_files(other), UNIT) == bytes(MIB) + content[MIB:UNIT]


def test_what_was_pinned_stays_pinned(stub: Stub) -> None:
    stub.fail("cuMemHostRegister=801@2")
    with closing(make_device()) as device, closing(AsJob()) as job:
        bank = filled(device, job, UNIT)
        for _ in range(3):
            device.copy_out(bank, [(0, UNIT)], JOB)()
        with pytest.raises(DriverError, match="cuMemHostRegister"):  # another store is pinned by itself
            device.copy_out(bank, [(0, UNIT)], JOB + 1)()


def test_what_is_pinned_ahead_is_not_pinned_by_the_copy(stub: Stub) -> None:
    stub.fail("cuMemHostRegister=801@3")
    with closing(make_device()) as device, closing(AsJob()) as job:
        bank = filled(device, job, 2 * PIECE)
        device.pin_ahead(JOB, PIECE + 1)
        until(lambda: device.stored_bytes() == 2 * PIECE)
        device.copy_out(bank, [(0, 2 * PIECE)], JOB)()
        with pytest.raises(DriverError, match="cuMemHostRegister"):
            device.copy_out(bank, [(0, UNIT)], JOB + 1)()


def test_a_copy_takes_over_from_the_thread_that_pins(device: CudaDevice) -> None:
    bank = grown(device, 3 * PIECE)
    os.pwrite(device.store_fd(JOB), PATTERN * UNIT, 2 * PIECE)
    device.pin_ahead(JOB, 3 * PIECE)
    device.copy_in(bank, [(0, 3 * PIECE)], JOB)()  # a piece that is pinned twice is an error
    os.pwrite(device.store_fd(JOB), bytes(UNIT), 2 * PIECE)
    device.copy_out(bank, [(2 * PIECE, 2 * PIECE + UNIT)], JOB)()
    assert os.pread(device.store_fd(JOB), UNIT, 2 * PIECE) == PATTERN * UNIT


def test_a_store_that_is_given_back_while_it_is_pinned_is_let_go(device: CudaDevice, stub: Stub) -> None:
    device.open_lane(1, UNIT)
    device.pin_ahead(JOB, MEMORY)
    assert "cuda0-store7" in agent_maps(device)
    device.drop_store(JOB)
    assert "cuda0-store7" not in agent_maps(device)
    device.pin_ahead(JOB, PIECE)
    device.close_lane(1)
    until(lambda: stub.used() == CONTEXT)
    device.drop_store(JOB)
    stub.wait_until_free()


def test_a_killed_agent_has_pinned_ahead_for_nobody(device: CudaDevice) -> None:
    bank = grown(device, UNIT)
    device.pin_ahead(JOB, 2 * PIECE)
    os.kill(agent_pid(device), signal.SIGKILL)
    device.pin_ahead(JOB, 2 * PIECE)
    device.copy_out(bank, [(0, UNIT)], JOB)()


def test_a_copy_beyond_the_bank_is_refused(device: CudaDevice) -> None:
    bank = grown(device, UNIT)
    for ranges in ([(0, UNIT + 1)], [(UNIT, UNIT + 1)], [(2 * UNIT, 3 * UNIT)]):
        with pytest.raises(DeviceError, match="has no byte"):
            device.copy_out(bank, ranges, JOB)


def agent_maps(device: CudaDevice) -> str:
    """What it has mapped when it has done everything that it was told.  Lane 1 is open."""
    (file,) = device.lane_files(1)
    device._link.ask(messages.Check(file.size), [file.fd])
    return Path(f"/proc/{agent_pid(device)}/maps").read_text()


@pytest.mark.parametrize("meanwhile", [False, True])
def test_bank_and_store_may_be_closed_after_they_are_copied_and_meanwhile(
    device: CudaDevice, stub: Stub, meanwhile: bool
) -> None:
    device.open_lane(1, UNIT)
    worker = threading.Thread(target=device.copy_out(grown(device, UNIT), [(0, UNIT)], JOB))
    if not meanwhile:
        worker.run()
        assert "cuda0-store7" in agent_maps(device)
    device.close_banks(OWNER)
    device.drop_store(JOB)
    if meanwhile:
        worker.start()
        worker.join()
    assert "cuda0-store7" not in agent_maps(device)
    assert stub.used() == UNIT + LOOKED
