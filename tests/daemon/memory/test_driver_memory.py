"""What a job's secondary processes get from the driver, and what the core hears of it.  On the stub, without a core."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import AsyncIterator

import pytest

from carpool.core.events import Detached, Event, ForeignMemory, MemoryRequested, Sampled, TraitsSeen
from carpool.core.model import MIB, Memory, MemoryClass
from carpool.daemon.channels.secondary import SHARE, SecondaryProcess
from carpool.protocol.seat import PROTOCOL, Grow, PacketType, Whole
from carpool.protocol.session import Register
from tests.daemon.cuda_rig import CAPACITY, cuda_rig, grant, limits, until
from tests.daemon.cuda_rig_fixture import rig
from tests.daemon.rig import Client, OtherProcess, Rig
from tests.devices.cuda_stub import Stub

__all__ = ["rig"]

P, E = MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL
ALL = CAPACITY // MIB
STEP = 16 * MIB  # of 224
OWN = 14  # MiB that the first process has been granted
WHY_IMMOVABLE = "some of its processes have memory from the driver itself"


class Further(OtherProcess):
    """A secondary process of a job whose first process is another one."""

    def __init__(self, rig: Rig, client: Client, number: int = 1, *, used: bool = True) -> None:
        """``used``: the seat of the first process has been; else that one becomes secondary, and this one sits."""
        client.seat.set("p_peak", int(used))
        super().__init__(rig, client, f"channel:{number}")
        self.asks(uses=True)
        self.known: SecondaryProcess = rig.secondary._of[self.job.id][-1]
        self.asked = 0

    def says(self, kind: PacketType, *numbers: int) -> list[Event]:
        super().says(kind, *numbers)
        self.follow()
        return self.rig.events

    def follow(self) -> None:
        """The core counts what it has been told of."""
        for event in self.rig.events:
            if isinstance(event, ForeignMemory):
                view = self.rig.view
                self.rig.view = view._replace(foreign=event.size, free=view.free + view.foreign - event.size)

    def grows(self, mib: int) -> tuple[Grow, int]:
        """As libcarpool does: first its seat, then the packet.  The answer, and what it may have then in MiB."""
        self.asked += 1
        words = {"grow_class": SHARE, "grow_total": mib * MIB, "grow_seq": self.asked}
        for word, value in words.items():
            self.known.seat.set(word, value)
        self.says(PacketType.GROW, SHARE, mib * MIB, self.asked)
        seat = self.known.seat
        assert seat.get("grow_ack") == self.asked, "it is answered at once"
        return Grow(seat.get("grow_status")), self.limit

    @property
    def limit(self) -> int:
        return self.known.seat.get("p_limit") // MIB


@pytest.fixture
async def second(rig: Rig, first: subprocess.Popen[bytes]) -> AsyncIterator[Further]:
    client = rig.attach(pid=first.pid)
    made = Further(rig, client)
    grant(rig, client, 10 * MIB, 4 * MIB)
    await until(lambda: limits(client) == (10 * MIB, 4 * MIB))
    rig.view = rig.view._replace(free=CAPACITY - OWN * MIB, jobs=(made.job.id,))
    yield made
    made.close()


@pytest.fixture
async def third(second: Further) -> AsyncIterator[Further]:
    """Another secondary process; the first of them has 100 MiB."""
    second.grows(100)
    made = Further(second.rig, second.client, 2)
    yield made
    made.channel.close()


def told(second: Further) -> list[Event]:
    return [event for event in second.rig.events if isinstance(event, ForeignMemory)]


def foreign(mib: int) -> list[ForeignMemory]:
    return [ForeignMemory("cuda0", mib * MIB)]


async def test_it_starts_with_nothing_and_gets_at_once_what_fits(second: Further) -> None:
    assert second.known.seat.get("whole") == Whole.SHARE and second.limit == 0
    assert second.grows(6) == (Grow.GRANTED, 6)
    assert second.grows(9) == (Grow.GRANTED, 9)
    assert second.grows(4) == (Grow.GRANTED, 9), "what it has is not taken"
    assert limits(second.client) == (10 * MIB, 4 * MIB) and second.job.granted == Memory(10 * MIB, 4 * MIB)


async def test_the_core_counts_it_as_in_use_and_as_the_jobs(second: Further) -> None:
    second.client.seat.set("fixed", MIB)
    second.grows(6)
    traits, *_, sampled = second.rig.events
    assert isinstance(traits, TraitsSeen) and traits.immovable == WHY_IMMOVABLE
    assert told(second) == foreign(6)
    assert isinstance(sampled, Sampled) and sampled.usage.fixed == 7 * MIB
    assert not any(isinstance(event, MemoryRequested) for event in second.rig.events)


async def test_together_they_get_no_more_than_the_device_has(second: Further, third: Further) -> None:
    rest = ALL - OWN - 100
    assert third.grows(rest + 1) == (Grow.DENIED, 0)
    assert third.grows(rest) == (Grow.GRANTED, rest)
    assert second.grows(101) == (Grow.DENIED, 100)
    assert told(second) == []


async def test_memory_of_others_counts(second: Further) -> None:
    """Jobs that hold some, and programs beside Carpool."""
    second.rig.view = second.rig.view._replace(jobs=(second.job.id, 99), free=30 * MIB)
    assert second.grows(31) == (Grow.DENIED, 0)
    assert second.grows(30) == (Grow.GRANTED, 30)
    second.rig.memory.driver.measured("cuda0", MIB, 0, 0)
    assert second.rig.events[-1:] == foreign(STEP // MIB + 30)
    second.rig.events.clear()
    second.rig.memory.driver.measured("cuda0", STEP, 0, STEP - 1)
    assert second.rig.events == [], "it is told in steps"


async def test_what_is_reserved_for_the_first_process_is_the_jobs(second: Further) -> None:
    """Its estimate is one of all its processes; where others have memory, what is reserved is not there."""
    second.rig.view = second.rig.view._replace(free=0)
    assert second.grows(100) == (Grow.GRANTED, 100)
    second.rig.view = second.rig.view._replace(jobs=(second.job.id, 99), free=0)
    assert second.grows(101) == (Grow.DENIED, 100)


@pytest.mark.parametrize(
    "words",
    [
        {"grow_class": 0, "grow_total": 15 * MIB, "grow_seq": 7},
        {"grow_class": 1, "grow_total": 9 * MIB, "grow_seq": 7},
        {"stored": 15 * MIB},
    ],
    ids=["persistent", "ephemeral", "stored"],
)
async def test_what_the_first_process_waits_for_is_its_own(second: Further, words: dict[str, int]) -> None:
    """It asked first, or gets that back: it would wait for ever if it went to another process of the job."""
    for word, value in words.items():
        second.client.seat.set(word, value)
    most = ALL - OWN - 5
    assert second.grows(most + 1) == (Grow.DENIED, 0)
    assert second.grows(most) == (Grow.GRANTED, most)


async def test_what_one_gives_back_another_may_have(second: Further, third: Further) -> None:
    second.says(PacketType.SHRUNK, SHARE, 2 * MIB)
    assert second.limit == 2 and told(second) == foreign(2)
    assert third.grows(ALL - OWN - 2) == (Grow.GRANTED, ALL - OWN - 2)


async def test_it_had_given_back_less_than_it_uses_now(second: Further) -> None:
    """What it said before a restart, when its next request has been answered from its seat."""
    second.grows(6)
    second.known.seat.set("p_live", 3 * MIB)
    second.known.seat.set("e_live", 2 * MIB)
    second.says(PacketType.SHRUNK, SHARE, 2 * MIB)
    assert second.limit == 5
    second.says(PacketType.SHRUNK, SHARE, 9 * MIB)
    assert second.limit == 5


async def test_the_end_of_one_leaves_room_for_another(second: Further, third: Further) -> None:
    third.rig.events.clear()
    third.rig.secondary._gone(third.job, second.known)
    third.follow()
    assert told(third) == foreign(0)
    assert third.grows(ALL - OWN) == (Grow.GRANTED, ALL - OWN)


async def test_the_end_of_the_job_leaves_nothing(second: Further, third: Further) -> None:
    third.grows(20)
    third.rig.events.clear()
    third.rig.secondary.forget(third.job)
    assert told(third) == foreign(0) and third.job.driver_bytes == 0


async def test_what_the_driver_has_not_is_refused(second: Further, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second.rig.device, "has_room", lambda _size: False)
    assert second.grows(6) == (Grow.DENIED, 0)


async def test_free_banks_are_given_up_for_it(second: Further) -> None:
    rig, size = second.rig, ALL - 20
    bank = rig.device.take_bank(1000, 0, None)
    rig.device.grow_bank(bank, (ALL - 40) * MIB)
    rig.device.free_bank(bank)
    assert second.grows(size) == (Grow.GRANTED, size) and rig.device.used_bytes() <= 20 * MIB


async def test_it_keeps_its_memory_when_the_first_process_is_gone(second: Further) -> None:
    rig, job = second.rig, second.job
    second.grows(6)
    rig.events.clear()
    rig.channels.process_ended(job.id)
    assert [event.kept for event in rig.events if isinstance(event, Detached)] == [0] and told(second) == []
    assert second.grows(8) == (Grow.GRANTED, 8) and told(second) == foreign(8)


async def test_with_the_next_process_the_core_hears_that_it_cannot_be_moved(second: Further) -> None:
    """What returned to the device later would find its place taken."""
    second.grows(6)
    second.rig.channels.process_ended(second.job.id)
    second.rig.says(second.client, PacketType.HELLO, PROTOCOL)
    last = second.rig.events[-1]
    assert isinstance(last, TraitsSeen) and last.immovable == WHY_IMMOVABLE


async def test_one_that_had_the_seat_asks_when_nobody_has_it(rig: Rig, first: subprocess.Popen[bytes]) -> None:
    client = rig.attach(pid=first.pid)
    further = Further(rig, client, used=False)
    known = further.known
    assert known.pid == first.pid and client.job.seated is not None and client.job.seated.pid == os.getpid()
    rig.channels.process_ended(client.job.id)
    assert client.job.seated is None
    alone, *_ = rig.says(client, PacketType.GROW, SHARE, 6 * MIB, 1)
    assert isinstance(alone, TraitsSeen) and alone.alone == "several of its processes use the device"
    assert (known.seat.get("grow_status"), known.seat.get("p_limit")) == (Grow.GRANTED, 6 * MIB)
    further.close()


async def test_a_request_for_memory_by_grant_is_refused(second: Further) -> None:
    """It had the job's seat when it began to ask."""
    assert second.says(PacketType.GROW, 0, MIB, 1) == []
    assert second.known.seat.get("grow_status") == Grow.DENIED and second.known.seat.get("grow_ack") == 1


async def test_a_device_that_nobody_has_measured_yet_has_what_lies_beside_its_capacity(second: Further) -> None:
    second.rig.device.spare = 8 * MIB
    second.rig.events.clear()
    second.rig.memory.driver.resume()
    assert second.rig.events == [ForeignMemory("cuda0", 0, spare=8 * MIB)]


async def test_after_a_restart(second: Further, stub: Stub) -> None:
    """What it may have is in its seat, and so is what it has asked for; the core hears of the one before all else."""
    second.grows(6)
    for word, value in {"grow_total": 8 * MIB, "grow_seq": 2}.items():
        second.known.seat.set(word, value)
    other, job = cuda_rig(), second.rig.job()
    other.jobs.live[job.id] = job
    other.recovery.begin(set())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    message = Register(job.id, 1, child_pid=os.getpid(), kept=[second.known.kept])
    assert other.channels.open(job, [ours.detach(), os.dup(second.known.board.held.fd)], message) == ""
    assert job.driver_bytes == 6 * MIB and job.has_secondary
    other.memory.driver.resume()
    assert other.events == foreign(6)
    other.secondary.ask_again(job)
    assert (second.known.seat.get("grow_ack"), second.limit) == (2, 8) and other.events[-1:] == foreign(8)
    other.close()
    theirs.close()
