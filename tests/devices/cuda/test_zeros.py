"""Blocks of zeros are not copied: what the kernel says, which parts are left out, and that contents stay the same."""

from __future__ import annotations

import ctypes
import os
import random
import signal
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carpool.core.model import MIB
from carpool.devices.base import BankId
from carpool.devices.cuda import zeros
from carpool.devices.cuda.device import CudaDevice
from carpool.devices.cuda.driver import DriverError
from carpool.devices.cuda.pinned import PIECE
from carpool.devices.cuda.zeros import BLOCK, split, whole_blocks
from tests.devices.contract_base import OWNER
from tests.devices.cuda.ptx import run_kernel
from tests.devices.cuda_contract import AsJob, agent_pid, make_device
from tests.devices.cuda_stub import Stub
from tests.tiers import all_but_first

JOB = 7
SIZE = 40 * MIB
#: In three of five pieces, of which two meet at one place.
USED = {0: b"weights", 5 * BLOCK + 4711: b"\x01", PIECE - 3: b"\xff" * 6, 31 * MIB: os.urandom(MIB)}


def content_of(used: dict[int, bytes]) -> bytes:
    content = bytearray(SIZE)
    for place, what in used.items():
        content[place : place + len(what)] = what
    return bytes(content)


def with_content(device: CudaDevice, content: bytes) -> BankId:
    """A bank, filled by way of a store of its own."""
    bank = device.take_bank(OWNER, 0, None)
    device.grow_bank(bank, len(content))
    other = 1000 + bank
    os.pwrite(device.store_fd(other), content, 0)
    device.copy_in(bank, [(0, len(content))], other)()
    device.drop_store(other)
    return bank


def stored(device: CudaDevice) -> bytes:
    return os.pread(device.store_fd(JOB), SIZE, 0)


def brought_back(device: CudaDevice) -> bytes:
    """What another bank, which was full of something else, has after a restore; read by another process."""
    bank = with_content(device, b"\xaa" * SIZE)
    device.copy_in(bank, [(0, SIZE)], JOB)()
    with closing(AsJob()) as job:
        found = job.use(device.bank_files(bank), SIZE)
    device.free_bank(bank)
    return found


# Parts


def test_parts_are_those_of_the_flags_and_nothing_is_missing() -> None:
    begin, end = 3 * BLOCK - 5, 8 * BLOCK + 7
    assert list(whole_blocks(begin, end)) == [3, 4, 5, 6, 7]
    parts = list(split(begin, end, bytes([0, 1, 1, 0, 1])))
    assert parts == [
        (begin, 4 * BLOCK, False),
        (4 * BLOCK, 6 * BLOCK, True),
        (6 * BLOCK, 7 * BLOCK, False),
        (7 * BLOCK, 8 * BLOCK, True),
        (8 * BLOCK, end, False),
    ]


@pytest.mark.parametrize("begin, end", [(5, 7), (BLOCK - 1, BLOCK + 1), (BLOCK, 2 * BLOCK), (0, 5 * BLOCK)])
def test_parts_of_any_flags_cover_the_range(begin: int, end: int) -> None:
    draw = random.Random(begin)
    count = len(whole_blocks(begin, end))
    parts = list(split(begin, end, bytes(draw.randrange(2) for _ in range(count))))
    assert (parts[0][0], parts[-1][1]) == (begin, end)
    assert all(before[1] == after[0] for before, after in pairwise(parts))


# The kernel


def test_the_kernel_marks_blocks_of_zeros_and_no_others() -> None:
    size, count = 2048, 6
    data = bytearray(size * count)
    data[0] = data[2 * size - 1] = data[3 * size + 1027] = 1
    marks = run_kernel(zeros.KERNEL.decode(), bytes(data), threads=32, blocks=count, vectors=size // 16)
    assert marks == [2, 2, 1, 2, 1, 1]


def test_the_kernel_sees_every_bit_of_a_block() -> None:
    draw = random.Random(7)
    for _ in range(60):
        data = bytearray(64 * 16)
        data[draw.randrange(len(data))] = 1 << draw.randrange(8)
        assert run_kernel(zeros.KERNEL.decode(), bytes(data), threads=8, blocks=1, vectors=64) == [2]


# Moves


def test_a_bank_with_little_in_it_costs_little_and_comes_back_the_same(device: CudaDevice) -> None:
    content = content_of(USED)
    bank = with_content(device, content)
    device.copy_out(bank, [(0, SIZE)], JOB)()
    assert device.stored_bytes() == 3 * PIECE
    assert stored(device) == content == brought_back(device)


def test_what_has_become_zero_is_zero_in_the_store(device: CudaDevice) -> None:
    """Then a piece is full of something else, of the move before."""
    full = os.urandom(SIZE)
    bank = with_content(device, full)
    device.copy_out(bank, [(0, SIZE)], JOB)()
    content = content_of(USED)
    again = with_content(device, content)
    device.copy_out(again, [(0, SIZE)], JOB)()
    assert stored(device) == content == brought_back(device)
    device.copy_out(bank, [(0, SIZE)], JOB)()
    assert stored(device) == full == brought_back(device)


def test_a_part_of_a_block_is_copied_over_zeros(device: CudaDevice) -> None:
    device.copy_out(with_content(device, bytes(SIZE)), [(0, SIZE)], JOB)()
    content, size = content_of({5 * BLOCK + 1: b"\x01"}), 5 * BLOCK + 2
    device.copy_out(with_content(device, content), [(0, size)], JOB)()
    assert brought_back(device) == content


@pytest.mark.parametrize("moment", all_but_first(["out", "in"]))
def test_another_agent_goes_on_with_a_store_with_holes(device: CudaDevice, moment: str) -> None:
    content = content_of(USED)
    bank = with_content(device, content)
    if moment == "out":
        device.copy_out(with_content(device, b"\x77" * SIZE), [(0, SIZE // 2)], JOB)()
        os.kill(agent_pid(device), signal.SIGKILL)
    device.copy_out(bank, [(0, SIZE)], JOB)()
    if moment == "in":
        os.kill(agent_pid(device), signal.SIGKILL)
    assert stored(device) == content == brought_back(device)


@pytest.mark.parametrize(
    "failure", all_but_first(["cuLaunchKernel=701@2", "cuModuleLoadData=222", "cuLaunchKernel=701@1"])
)
def test_without_the_kernel_everything_is_copied(stub: Stub, failure: str) -> None:
    content = content_of(USED)
    stub.fail(failure)
    with closing(make_device()) as device:
        bank = with_content(device, content)
        for _ in range(2):
            with suppress(DriverError):
                device.copy_out(bank, [(0, SIZE)], JOB)()
        assert stored(device) == content == brought_back(device)
        assert device.stored_bytes() == SIZE


def test_an_agent_that_the_kernel_has_ended_is_followed_by_one_without(stub: Stub) -> None:
    content = content_of(USED)
    stub.fail("cuStreamSynchronize=719@6")
    with closing(make_device()) as device:
        bank = with_content(device, content)
        with pytest.raises(DriverError, match="cuStreamSynchronize"):
            device.copy_out(bank, [(0, SIZE)], JOB)()
        stub.fail("cuMemFree=1@100")
        device.copy_out(bank, [(0, SIZE)], JOB)()
        assert Path(f"/proc/{agent_pid(device)}/cmdline").read_bytes().endswith(b"\0whole\0")
        assert stored(device) == content == brought_back(device)
        assert device.stored_bytes() == SIZE


class Driver:
    """Calls of a driver whose kernel writes ``marks``, whatever it is asked to look at."""

    def __init__(self, marks: list[int]) -> None:
        self.marks = marks
        self.host = ctypes.create_string_buffer(1 << 20)

    def __call__(self, function: str, *arguments: Any) -> Any:
        if function == "cuMemHostAlloc":
            return ctypes.addressof(self.host)
        if function == "cuLaunchKernel":
            written = (ctypes.c_uint32 * len(self.marks))(*self.marks)
            ctypes.memmove(self.host, written, ctypes.sizeof(written))
        return 1


@pytest.mark.parametrize(
    ("marks", "believed"), [([1, 2, 2, 2, 1], True), ([], False), ([1] * 5, False), ([1, 2, 1, 1, 1], False)]
)
def test_a_kernel_that_is_wrong_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, marks: list[int], believed: bool
) -> None:
    driver = Driver(marks)
    monkeypatch.setattr(zeros, "call", driver)
    monkeypatch.setattr(zeros, "bindings", lambda: SimpleNamespace(CU_MEMHOSTALLOC_DEVICEMAP=2))
    finder = zeros.ZeroFinder(SimpleNamespace(stream=lambda: 1, wait=lambda: None))  # type: ignore[arg-type]
    monkeypatch.setattr(finder, "_worthwhile", lambda address, count: True)
    assert finder.find(0, 5) == (bytes([1, 0, 0, 0, 1]) if believed else bytes(5))
