"""What holds for all three that move a job's memory to its store: the job, its shim, the daemon with a device's agent.

Each moves real memory: libcarpool's part is played by `fakemover`, the shim's is its own code, the agent runs on the
stub driver.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable

import pytest
from fakeextents import BANK
from fakemover import Mover

from carpool.core import commands
from carpool.core.events import Event, Offloaded, OffloadFailed
from carpool.core.model import MIB, Memory
from carpool.protocol.seat import HEADER_BYTES, SEAT_BYTES, PacketType
from carpool.runtime.shim.offload_stopped_job import Taking
from tests.daemon.cuda_rig import Mapped, cuda_rig, grant
from tests.daemon.memory.test_copies import Gate
from tests.daemon.rig import Rig
from tests.devices.cuda_stub import Stub

SIZE = 8 * MIB


class ByJob:
    """The process of the job, on a host device."""

    fails = "No space left on device"

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig, self.client = rig, rig.attach()
        _, _, bank, store = self.client.fds
        self.content = Mover(self.client.seat, os.dup(bank), store)
        rig.do(commands.GrantMemory(self.client.job.id, Memory(SIZE, 0)))
        self.content.write(SIZE, 7)
        self.answer: tuple[int, int] = (0, 0)

    async def move(self, *, fail: bool = False) -> None:
        """It has done its work, and has not said so."""
        self.content.error = errno.ENOSPC if fail else 0
        self.answer = self.content.offload(), SIZE

    async def tell(self) -> None:
        self.rig.says(self.client, PacketType.OFFLOADED, *self.answer)

    def in_bank(self) -> set[int]:
        return self.content.read(SIZE)

    def close(self) -> None:
        os.close(self.content.bank_fd)
        os.close(self.content.store_fd)


class ByShim(ByJob):
    """The shim of a job that is stopped, and has been asked first."""

    fails = "its shim does not hold its memory"

    async def move(self, *, fail: bool = False) -> None:
        job = self.client.job
        assert self.rig.memory.offloads.by_shim.begin(job)
        number, bank, store = self.rig.takes[-1]
        kept = self.rig.shims[number]
        self.taking = Taking(None if fail else kept[bank], kept[store])
        while not self.taking.step(self._seat):
            pass

    async def tell(self) -> None:
        self.rig.events.clear()
        self.rig.memory.offloads.taken(self.client.job, self.taking.error, self.taking.bytes)

    def _seat(self) -> bytes:
        return os.pread(self.client.fds[0], SEAT_BYTES, HEADER_BYTES + self.client.seat.slot * SEAT_BYTES)


class ByAgent:
    """The daemon, for a job whose memory comes in extents."""

    fails = "the GPU is on fire"

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig, self.client = rig, rig.attach()
        self.content = Mapped(rig, self.client)
        grant(rig, self.client, SIZE, 0)
        self.content.drain()
        self.content.write(BANK, SIZE, 7)
        self.gate = Gate(monkeypatch, rig, "copy_out")

    async def move(self, *, fail: bool = False) -> None:
        self.gate.error = self.fails if fail else None
        await self.gate.reached()

    async def tell(self) -> None:
        self.rig.events.clear()
        self.gate.open()
        await self.rig.memory.copies.close()

    def in_bank(self) -> set[int]:
        return self.content.read(BANK, SIZE)

    def close(self) -> None:
        self.content.close()


Case = ByJob | ByShim | ByAgent


@pytest.fixture(params=[ByJob, ByShim, ByAgent])
async def case(request: pytest.FixtureRequest, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    rig = cuda_rig() if request.param is ByAgent else Rig()
    make: Callable[[Rig, pytest.MonkeyPatch], Case] = request.param
    made = make(rig, monkeypatch)
    rig.events.clear()
    rig.do(commands.Offload(made.client.job.id))
    yield made
    made.close()
    await rig.memory.copies.close()
    rig.close()


def ends(case: Case) -> list[Event]:
    return [event for event in case.rig.events if isinstance(event, Offloaded | OffloadFailed)]


def failed(case: Case, why: str) -> list[Event]:
    return [OffloadFailed(case.client.job.id, f"its memory cannot be moved to the host store: {why}")]


async def test_everything_is_in_the_store_and_the_bank_is_free(case: Case) -> None:
    job, seat = case.client.job, case.client.seat
    assert job.seated is not None
    await case.move()
    assert ends(case) == [] and job.bank is not None
    await case.tell()
    assert ends(case) == [Offloaded(job.id)]
    assert set(os.pread(job.seated.store_fd, SIZE, 0)) == {7}
    assert (seat.get("stored"), seat.get("offloaded"), seat.get("offload")) == (SIZE, 1, 0)
    assert job.bank is None and not job.offloading


async def test_where_it_fails_the_memory_is_where_it_was(case: Case) -> None:
    job, seat = case.client.job, case.client.seat
    await case.move(fail=True)
    await case.tell()
    assert ends(case) == failed(case, case.fails)
    assert (seat.get("stored"), seat.get("offloaded"), seat.get("offload")) == (0, 0, 0)
    assert job.bank is not None and not job.offloading and case.in_bank() == {7}


async def test_where_the_job_got_a_turn_it_was_worth_nothing(case: Case) -> None:
    """The process reads in its seat and its store what it has to bring back."""
    job = case.client.job
    await case.move()
    case.client.seat.set("turn", 1)
    await case.tell()
    assert ends(case) == failed(case, "it got a turn first")
    assert job.bank is not None and not job.offloading and case.in_bank() == {7}


async def test_an_end_after_it_was_given_up_is_nothing(case: Case) -> None:
    await case.move()
    case.client.seat.set("offload", 1)  # what it has said last is that it has been asked
    case.rig.memory.offloads.unanswered(case.client.job)
    assert ends(case) == failed(case, "it did not answer")
    case.rig.events.clear()
    await case.tell()
    assert ends(case) == [] and case.client.job.bank is not None


async def test_of_a_job_that_is_gone_nothing_is_said(case: Case) -> None:
    """Its bank is not freed twice: by the end of its process, or by that of the copy."""
    job = case.client.job
    await case.move()
    case.rig.channels.process_ended(job.id)
    case.rig.events.clear()
    await case.tell()
    assert ends(case) == [] and job.seated is None and job.bank is None
