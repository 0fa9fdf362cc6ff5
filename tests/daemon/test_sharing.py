"""What the processes of a job ask for together, and how it is divided.  On the stub driver, without a core."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import AsyncIterator

import pytest
from cuda_rig import CAPACITY, Mapped, cuda_rig, grant, limits, until
from rig import Client, Rig

from carpool.core import commands
from carpool.core.events import (
    Attached,
    Detached,
    Event,
    MemoryRequested,
    MemoryReturned,
    RequestWithdrawn,
    TraitsSeen,
)
from carpool.core.model import MIB, Memory, MemoryClass, Reason
from carpool.daemon.channels.companions import SHARE, Companion
from carpool.protocol.seat import PROTOCOL, Grow, Packet, PacketType, Whole
from carpool.protocol.session import Register
from tests.devices.cuda_stub import Stub

P, E = MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL
REFUSED = Reason("too_large", "")


class Further:
    """A companion, which is this process, of a job whose attached process is another one."""

    def __init__(self, rig: Rig, client: Client, number: int = 1, *, used: bool = True) -> None:
        """``used``: the seat of the attached process has been; else that one becomes a companion, and this one sits."""
        self.rig, self.client, self.job = rig, client, client.job
        client.seat.set("p_peak", int(used))
        ours, self.channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        rig.channels.bring(client.job, f"channel:{number}", ours.detach())
        self.says(PacketType.HELLO, PROTOCOL, 1)
        self.known: Companion = rig.companions._of[self.job.id][-1]
        self.asked = 0

    def says(self, kind: PacketType, *numbers: int) -> list[Event]:
        self.rig.events.clear()
        self.channel.send(Packet(kind, os.getpid(), *numbers).encode())
        self.rig.hears(self.job)
        return [event for event in self.rig.events if not isinstance(event, TraitsSeen)]

    def asks(self, mib: int) -> list[Event]:
        """As libcarpool does: first its seat, then the packet."""
        self.asked += 1
        words = {"grow_class": SHARE, "grow_total": mib * MIB, "grow_seq": self.asked}
        for word, value in words.items():
            self.known.seat.set(word, value)
        return self.says(PacketType.GROW, SHARE, mib * MIB, self.asked)

    @property
    def answer(self) -> Grow | None:
        """To its latest request."""
        seat = self.known.seat
        return Grow(seat.get("grow_status")) if self.asked and seat.get("grow_ack") == self.asked else None

    @property
    def share(self) -> int:
        return self.known.seat.get("p_limit") // MIB


@pytest.fixture
async def rig(stub: Stub) -> AsyncIterator[Rig]:
    made = cuda_rig()
    yield made
    made.close()


@pytest.fixture
async def second(rig: Rig, first: subprocess.Popen[bytes]) -> AsyncIterator[Further]:
    client = rig.attach(pid=first.pid)
    made = Further(rig, client)
    grant(rig, client, 10 * MIB, 4 * MIB)
    await until(lambda: limits(client) == (10 * MIB, 4 * MIB))
    yield made
    rig.companions.forget(made.job)
    made.channel.close()


def wanted(second: Further, mib: int) -> list[Event]:
    return [MemoryRequested(second.job.id, P, mib * MIB)]


def wanted_anew(second: Further, mib: int) -> list[Event]:
    """It is less than before."""
    return [RequestWithdrawn(second.job.id, P), *wanted(second, mib)]


def test_a_share_starts_with_nothing(second: Further) -> None:
    assert second.known.seat.get("whole") == Whole.SHARE and second.share == 0


async def test_it_asks_as_a_part_of_its_job(second: Further) -> None:
    assert second.asks(6) == wanted(second, 16)
    assert second.answer is None
    grant(second.rig, second.client, 16 * MIB, 4 * MIB, P)
    assert (second.answer, second.share) == (Grow.GRANTED, 6)
    assert second.job.own == Memory(10 * MIB, 4 * MIB) and limits(second.client) == (10 * MIB, 4 * MIB)
    assert second.asks(8) == wanted(second, 18)


async def test_the_core_hears_first_that_it_cannot_be_moved(second: Further) -> None:
    second.asks(6)
    told = [event for event in second.rig.events if isinstance(event, TraitsSeen)]
    assert second.rig.events[0] is told[0]
    assert told[0].immovable == "further processes of it have memory from the driver"


async def test_what_is_refused_to_it_is_refused_to_nobody_else(second: Further) -> None:
    second.asks(6)
    second.rig.do(commands.DenyMemory(second.job.id, P, REFUSED))
    assert (second.answer, second.share) == (Grow.DENIED, 0)
    assert second.client.seat.get("grow_ack") == 0 and second.job.own.persistent == 10 * MIB


async def test_one_asks_after_the_other(second: Further) -> None:
    rig, client = second.rig, second.client
    second.asks(6)
    assert rig.says(client, PacketType.GROW, 0, 12 * MIB, 1) == []
    grant(rig, client, 16 * MIB, 4 * MIB, P)
    assert (second.answer, client.seat.get("grow_ack")) == (Grow.GRANTED, 0)
    assert wanted(second, 18) == [event for event in rig.events if isinstance(event, MemoryRequested)]
    grant(rig, client, 18 * MIB, 4 * MIB, P)
    await until(lambda: client.seat.get("grow_ack") == 1)
    assert limits(client)[0] == 12 * MIB and second.share == 6


async def test_what_need_not_wait_does_not(second: Further) -> None:
    second.asks(6)
    assert second.rig.says(second.client, PacketType.GROW, 0, 12 * MIB, 1, 1) == []
    assert (second.client.seat.get("grow_ack"), second.client.seat.get("grow_status")) == (1, Grow.DENIED)


async def test_a_grant_of_the_other_class_may_bring_it(second: Further) -> None:
    """The answer to what the attached process has asked for comes first: it gets no more than that."""
    rig, client = second.rig, second.client
    second.asks(6)
    rig.says(client, PacketType.GROW, 1, 8 * MIB, 1)
    grant(rig, client, 16 * MIB, 8 * MIB, E)
    await until(lambda: client.seat.get("grow_ack") == 1)
    assert limits(client) == (10 * MIB, 8 * MIB) and second.answer is None
    grant(rig, client, 16 * MIB, 8 * MIB, P)
    assert second.answer is Grow.GRANTED and limits(client) == (10 * MIB, 8 * MIB)


async def test_what_is_granted_to_spare_is_for_who_has_asked(second: Further) -> None:
    second.asks(6)
    grant(second.rig, second.client, 24 * MIB, 4 * MIB, P)
    assert (second.answer, second.share) == (Grow.GRANTED, 14)
    assert second.job.own == Memory(10 * MIB, 4 * MIB) and limits(second.client) == (10 * MIB, 4 * MIB)


async def test_what_is_to_spare_does_not_add_up(second: Further) -> None:
    """Each time a little more than was asked for, as long as memory is plentiful."""
    for number in range(100):
        (asked,) = second.asks(second.share + 1)
        assert isinstance(asked, MemoryRequested) and asked.total <= (11 * MIB) + second.known.seat.get("p_limit")
        grant(second.rig, second.client, asked.total + MIB // 2, 4 * MIB, P)
        assert second.answer is Grow.GRANTED, number
        assert second.job.own.persistent == limits(second.client)[0] == 10 * MIB
        assert second.job.granted.persistent == 10 * MIB + second.known.seat.get("p_limit")


async def test_what_was_to_spare_goes_back_with_the_rest(second: Further) -> None:
    second.asks(6)
    second.rig.companions._gone(second.job, second.known)
    grant(second.rig, second.client, 24 * MIB, 4 * MIB, P)  # it crosses
    assert second.rig.events[-1] == MemoryReturned(second.job.id, P, 10 * MIB)


async def test_a_grant_of_the_other_class_may_bring_some_to_spare(second: Further) -> None:
    rig, client = second.rig, second.client
    second.asks(6)
    rig.says(client, PacketType.GROW, 1, 8 * MIB, 1)
    grant(rig, client, 24 * MIB, 8 * MIB, E)
    await until(lambda: client.seat.get("grow_ack") == 1)
    assert limits(client) == (10 * MIB, 8 * MIB)
    grant(rig, client, 24 * MIB, 8 * MIB, P)
    assert second.share == 14 and limits(client) == (10 * MIB, 8 * MIB)


async def test_what_comes_back_from_a_store_is_not_to_spare(second: Further) -> None:
    """The core has kept its old limit, which is more than it uses."""
    rig, client = second.rig, second.client
    client.seat.set("p_used", 7 * MIB)
    grant(rig, client, 0, 0)
    assert second.asks(2) == wanted(second, 9)
    grant(rig, client, 10 * MIB, 4 * MIB)
    assert second.answer is None and second.job.own.persistent == 8 * MIB
    grant(rig, client, 10 * MIB, 4 * MIB, P)
    assert second.share == 2 and second.job.own.persistent == 8 * MIB


@pytest.fixture
async def third(second: Further) -> AsyncIterator[Further]:
    """Another companion; the second one has 6 MiB."""
    second.asks(6)
    grant(second.rig, second.client, 16 * MIB, 4 * MIB, P)
    made = Further(second.rig, second.client, 2)
    yield made
    made.channel.close()


async def test_what_one_gives_back_another_may_have(second: Further, third: Further) -> None:
    assert third.asks(4) == wanted(third, 20)
    assert second.says(PacketType.SHRUNK, SHARE, 2 * MIB) == wanted_anew(third, 16)
    third.rig.events.clear()
    grant(third.rig, third.client, 16 * MIB, 4 * MIB, P)  # the core has it already
    assert (third.answer, third.share, second.share) == (Grow.GRANTED, 4, 2)
    assert third.rig.events == [] and third.job.own.persistent == 10 * MIB


async def test_what_nobody_needs_goes_back(second: Further, third: Further) -> None:
    third.asks(2)
    assert second.says(PacketType.SHRUNK, SHARE, 0) == wanted_anew(third, 12)
    third.rig.events.clear()
    grant(third.rig, third.client, 16 * MIB, 4 * MIB, P)
    assert (third.answer, third.share, third.job.own.persistent) == (Grow.GRANTED, 2, 10 * MIB)
    assert third.rig.events == [MemoryReturned(third.job.id, P, 12 * MIB)]


async def test_the_end_of_one_makes_the_request_of_another_smaller(second: Further, third: Further) -> None:
    third.asks(20)
    third.rig.events.clear()
    third.rig.companions._gone(third.job, second.known)
    assert third.rig.events == wanted_anew(third, 30)
    third.rig.do(commands.DenyMemory(third.job.id, P, REFUSED))
    assert third.rig.events[2:] == [MemoryReturned(third.job.id, P, 10 * MIB)]


async def test_nobody_is_refused_what_is_asked_for_anew(
    second: Further, third: Further, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core answers a withdrawal at once."""
    rig, heard = third.rig, list[Event]()

    def post(event: Event) -> None:
        heard.append(event)
        if isinstance(event, RequestWithdrawn):
            rig.do(commands.DenyMemory(third.job.id, P, REFUSED))

    third.asks(4)
    monkeypatch.setattr(rig.sharing, "_post", post)
    second.says(PacketType.SHRUNK, SHARE, 2 * MIB)
    assert heard == wanted_anew(third, 16) and third.answer is None and third.client.seat.get("grow_ack") == 0
    grant(rig, third.client, 16 * MIB, 4 * MIB, P)
    assert (third.answer, third.share) == (Grow.GRANTED, 4)


async def test_it_had_given_back_less_than_it_uses_now(second: Further) -> None:
    """What it said before a restart, when its next request has been answered from its seat."""
    second.asks(6)
    grant(second.rig, second.client, 16 * MIB, 4 * MIB, P)
    second.known.seat.set("p_live", 3 * MIB)
    second.known.seat.set("e_live", 2 * MIB)
    assert second.says(PacketType.SHRUNK, SHARE, 2 * MIB) == [MemoryReturned(second.job.id, P, 15 * MIB)]
    assert second.share == 5


async def test_it_gives_back(second: Further) -> None:
    second.asks(6)
    grant(second.rig, second.client, 16 * MIB, 4 * MIB, P)
    assert second.says(PacketType.SHRUNK, SHARE, 2 * MIB) == [MemoryReturned(second.job.id, P, 12 * MIB)]
    assert second.share == 2 and second.job.own.persistent == 10 * MIB  # until the core has heard it
    grant(second.rig, second.client, 12 * MIB, 4 * MIB)
    assert second.job.own.persistent == 10 * MIB and limits(second.client)[0] == 10 * MIB


async def test_the_attached_process_gives_back_its_own(second: Further) -> None:
    second.asks(6)
    assert second.rig.says(second.client, PacketType.SHRUNK, 0, 4 * MIB) == wanted_anew(second, 10)
    assert limits(second.client)[0] == 4 * MIB
    grant(second.rig, second.client, 10 * MIB, 4 * MIB, P)
    assert (second.answer, second.share) == (Grow.GRANTED, 6) and limits(second.client)[0] == 4 * MIB
    returned = [MemoryReturned(second.job.id, P, 8 * MIB)]
    assert second.rig.says(second.client, PacketType.SHRUNK, 0, 2 * MIB) == returned


async def test_what_the_attached_process_gives_back_is_not_lost_when_somebody_is_refused(second: Further) -> None:
    second.asks(6)
    second.rig.says(second.client, PacketType.SHRUNK, 0, 4 * MIB)
    second.rig.events.clear()
    second.rig.do(commands.DenyMemory(second.job.id, P, REFUSED))
    assert second.answer is Grow.DENIED and second.rig.events == [MemoryReturned(second.job.id, P, 4 * MIB)]
    grant(second.rig, second.client, 4 * MIB, 4 * MIB)
    assert limits(second.client)[0] == 4 * MIB and second.job.own.persistent == 4 * MIB


async def test_its_end_gives_back_all_of_it(second: Further) -> None:
    second.asks(6)
    grant(second.rig, second.client, 16 * MIB, 4 * MIB, P)
    second.rig.events.clear()
    second.rig.companions._gone(second.job, second.known)
    assert second.rig.events == [MemoryReturned(second.job.id, P, 10 * MIB)]


async def test_it_ends_while_it_waits(second: Further) -> None:
    second.asks(6)
    second.rig.events.clear()
    second.rig.companions._gone(second.job, second.known)
    assert second.rig.events == [RequestWithdrawn(second.job.id, P)]
    grant(second.rig, second.client, 16 * MIB, 4 * MIB, P)  # it crosses
    assert second.rig.events[1:] == [MemoryReturned(second.job.id, P, 10 * MIB)]


async def test_it_is_interrupted(second: Further) -> None:
    second.asks(6)
    assert second.says(PacketType.WITHDRAWN, SHARE, 0, 1) == [RequestWithdrawn(second.job.id, P)]
    second.rig.do(commands.DenyMemory(second.job.id, P, REFUSED))
    assert second.answer is Grow.DENIED


async def test_it_is_interrupted_before_the_core_has_heard_of_it(second: Further) -> None:
    second.rig.says(second.client, PacketType.GROW, 0, 12 * MIB, 1)
    assert second.asks(6) == []
    assert second.says(PacketType.WITHDRAWN, SHARE, 0, 1) == [] and second.answer is Grow.DENIED


async def others_have(rig: Rig, first: int, then: int) -> tuple[Client, Mapped]:
    """Another job, which has been granted so many MiB and then less."""
    other = rig.attach(owner=1001, pid=None)
    mapped = Mapped(rig, other)
    grant(rig, other, first * MIB, 0)
    await until(lambda: limits(other)[0] == first * MIB)
    mapped.answer()
    grant(rig, other, then * MIB, 0)
    return other, mapped


async def test_it_waits_until_others_have_let_go(second: Further) -> None:
    rig = second.rig
    other, mapped = await others_have(rig, 32, 0)
    assert other.job.cuts
    second.asks(6)
    grant(rig, second.client, 16 * MIB, 4 * MIB, P)
    assert second.answer is None and second.share == 0
    mapped.answer()
    await until(lambda: second.answer is Grow.GRANTED)
    assert second.share == 6
    mapped.close()


async def test_a_bank_that_cannot_get_smaller_is_not_waited_for(second: Further) -> None:
    """It has one extent, and its job a small part of that; the books have the rest for others."""
    rig, size = second.rig, CAPACITY // MIB - 30
    other, mapped = await others_have(rig, 32, 5)
    assert not other.job.cuts and rig.device.used_bytes() + size * MIB > CAPACITY
    second.asks(size)
    grant(rig, second.client, (10 + size) * MIB, 4 * MIB, P)
    assert (second.answer, second.share) == (Grow.GRANTED, size)
    mapped.close()


async def test_it_asks_again_for_what_is_on_its_way(second: Further) -> None:
    """It was interrupted meanwhile."""
    _, mapped = await others_have(second.rig, 32, 0)
    second.asks(6)
    grant(second.rig, second.client, 16 * MIB, 4 * MIB, P)
    assert second.says(PacketType.WITHDRAWN, SHARE, 0, 1) == []
    assert second.asks(6) == []
    mapped.answer()
    await until(lambda: second.answer is Grow.GRANTED)
    assert second.share == 6 and second.job.shares.lent == 6 * MIB
    mapped.close()


async def test_it_asks_for_more_than_is_on_its_way(second: Further) -> None:
    _, mapped = await others_have(second.rig, 32, 0)
    second.asks(6)
    grant(second.rig, second.client, 16 * MIB, 4 * MIB, P)
    second.says(PacketType.WITHDRAWN, SHARE, 0, 1)
    assert second.asks(9) == wanted(second, 19)
    grant(second.rig, second.client, 19 * MIB, 4 * MIB, P)
    mapped.answer()
    await until(lambda: not second.job.shares.coming)
    assert (second.answer, second.share) == (Grow.GRANTED, 9) and second.job.shares.lent == 9 * MIB
    mapped.close()


async def test_it_ends_while_two_answers_are_on_their_way(second: Further) -> None:
    _, mapped = await others_have(second.rig, 32, 0)
    for mib in (6, 9):
        second.asks(mib)
        grant(second.rig, second.client, (10 + mib) * MIB, 4 * MIB, P)
    second.rig.events.clear()
    second.rig.companions._gone(second.job, second.known)
    assert second.rig.events == [MemoryReturned(second.job.id, P, 10 * MIB)]
    assert not second.job.shares.coming and second.job.shares.lent == 0
    mapped.answer()
    mapped.close()


async def test_free_banks_are_given_up_for_it(second: Further) -> None:
    rig, size = second.rig, CAPACITY // MIB - 20
    bank = rig.device.take_bank(1000, 0, None)
    rig.device.grow_bank(bank, (CAPACITY // MIB - 40) * MIB)
    rig.device.free_bank(bank)
    second.asks(size)
    grant(rig, second.client, (10 + size) * MIB, 4 * MIB, P)
    assert second.answer is Grow.GRANTED and rig.device.used_bytes() <= 20 * MIB


async def test_it_keeps_its_share_when_the_attached_process_is_gone(second: Further) -> None:
    rig, job = second.rig, second.job
    second.asks(6)
    grant(rig, second.client, 16 * MIB, 4 * MIB, P)
    second.asks(8)
    rig.events.clear()
    rig.channels.process_ended(job.id)
    detached = [event for event in rig.events if isinstance(event, Detached)]
    assert [event.kept for event in detached] == [6 * MIB]
    rig.do(commands.GrantMemory(job.id, Memory(6 * MIB, 0)))
    assert rig.events[-1] == MemoryRequested(job.id, P, 8 * MIB)  # what it waits for is asked again
    rig.do(commands.GrantMemory(job.id, Memory(8 * MIB, 0), P))
    assert (second.answer, second.share, job.own) == (Grow.GRANTED, 8, Memory())


async def test_who_comes_next_is_told_apart(second: Further) -> None:
    """The core hears with it that what the companions have cannot be moved."""
    rig, job = second.rig, second.job
    second.asks(6)
    grant(rig, second.client, 16 * MIB, 4 * MIB, P)
    rig.channels.process_ended(job.id)
    rig.says(second.client, PacketType.HELLO, PROTOCOL)
    attached, told = rig.events[-2:]
    assert attached == Attached(job.id) and isinstance(told, TraitsSeen)
    assert told.immovable == "further processes of it have memory from the driver"


async def test_one_that_had_the_seat_asks_when_nobody_has_it(rig: Rig, first: subprocess.Popen[bytes]) -> None:
    """The core does not listen to a job without an attached process before it knows of several."""
    client = rig.attach(pid=first.pid)
    further = Further(rig, client, used=False)
    known = further.known
    assert known.pid == first.pid and client.job.seated is not None and client.job.seated.pid == os.getpid()
    rig.channels.process_ended(client.job.id)
    assert client.job.seated is None
    told, asked = rig.says(client, PacketType.GROW, SHARE, 6 * MIB, 1)
    assert isinstance(told, TraitsSeen) and told.alone == "several of its processes use the device"
    assert told.immovable is None and asked == MemoryRequested(client.job.id, P, 6 * MIB)
    rig.do(commands.GrantMemory(client.job.id, Memory(6 * MIB, 0), P))
    assert (known.seat.get("grow_status"), known.seat.get("p_limit")) == (Grow.GRANTED, 6 * MIB)
    rig.companions.forget(client.job)
    further.channel.close()


async def test_a_request_for_memory_by_grant_is_refused(second: Further) -> None:
    """It had the job's seat when it began to ask."""
    assert second.says(PacketType.GROW, 0, MIB, 1) == []
    assert second.known.seat.get("grow_status") == Grow.DENIED and second.known.seat.get("grow_ack") == 1


async def test_after_a_restart(second: Further, stub: Stub) -> None:
    """Its share is in its seat, and so is what it waits for."""
    second.asks(6)
    grant(second.rig, second.client, 16 * MIB, 4 * MIB, P)
    second.asks(8)
    other, job = cuda_rig(), second.rig.job()
    other.jobs.live[job.id] = job
    other.recovery.begin(set())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    message = Register(job.id, 1, child_pid=os.getpid(), kept=[second.known.kept])
    assert other.channels.open(job, [ours.detach(), os.dup(second.known.board.fd)], message)
    assert job.shares.lent == 6 * MIB and job.several
    job.granted = Memory(job.shares.lent, 0)
    other.companions.ask_again(job)
    assert other.events[-1] == MemoryRequested(job.id, P, 8 * MIB)
    other.do(commands.GrantMemory(job.id, Memory(8 * MIB, 0), P))
    assert second.answer is Grow.GRANTED
    other.close()
    theirs.close()
