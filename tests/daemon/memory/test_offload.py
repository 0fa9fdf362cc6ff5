"""Banks, stores and offloads at the seat: who holds what, which answer counts, what is found after a restart."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os

import pytest

from carpool.core import commands
from carpool.core.events import Offloaded, OffloadFailed, TurnPassed
from carpool.core.model import MIB, Memory, MemoryClass
from carpool.daemon.memory import grants, overuse
from carpool.daemon.memory.overuse import Reclaim
from carpool.daemon.seats.record import usage_of
from carpool.devices.base import single
from carpool.protocol.seat import OffloadState, PacketType
from carpool.protocol.session import BUSY, WITHDRAWN
from tests.daemon.cuda_rig import until
from tests.daemon.failing import without_banks
from tests.daemon.rig import CAPACITY, Client, Rig

SOME = Memory(MIB, 0)


def kinds(events: list[object]) -> list[type]:
    return [type(event) for event in events if isinstance(event, Offloaded | OffloadFailed)]


def use(rig: Rig, client: Client, size: int) -> None:
    bank = client.job.bank
    assert bank is not None
    os.pwrite(single(rig.device.bank_files(bank)), b"\x5a" * size, 0)


# Banks


async def test_a_process_that_attaches_gets_a_bank_and_a_store(rig: Rig, client: Client) -> None:
    job = client.job
    assert (client.setup.type, len(client.fds)) == (PacketType.SETUP, 4)
    assert client.setup.e == client.seat.get("bank") == job.bank
    assert [os.fstat(fd).st_ino for fd in client.fds[2:]] == [
        os.fstat(fd).st_ino for fd in (single(rig.device.bank_files(client.setup.e)), rig.device.store_fd(job.id))
    ]
    assert set(client.kept) == {"board:host0:0", "lane:1", f"bank:host0:{job.bank}", "store:host0"}


async def test_two_jobs_use_one_bank(rig: Rig) -> None:
    first, second = rig.attach(), rig.attach()
    assert first.job.bank != second.job.bank
    use(rig, first, MIB)
    assert kinds(rig.offload(first)) == [Offloaded]
    assert first.job.bank is None and second.silent()
    rig.offload(second)
    rig.do(commands.GrantMemory(second.job.id, SOME))  # its own bank is empty: it has used no page of it
    packet, fds = second.receive()
    assert (packet.type, packet.a) == (PacketType.BANK, first.setup.e)
    assert os.fstat(fds[0]).st_ino == os.fstat(single(rig.device.bank_files(packet.a))).st_ino
    assert second.seat.get("bank") == second.job.bank == packet.a
    assert [name for name in second.kept if name.startswith("bank")] == [f"bank:host0:{packet.a}"]
    rig.do(commands.GrantMemory(first.job.id, SOME))
    assert first.job.bank == second.setup.e, "it shares a bank with somebody on the device"


async def test_a_job_that_comes_back_to_its_bank_is_told_nothing(rig: Rig, client: Client) -> None:
    use(rig, client, MIB)
    rig.offload(client)
    rig.do(commands.GrantMemory(client.job.id, Memory(0, MIB)))
    assert client.job.bank is None and client.seat.get("e_limit") == MIB
    rig.do(commands.GrantMemory(client.job.id, SOME))
    assert client.job.bank == client.setup.e and client.silent()
    assert f"bank:host0:{client.setup.e}" in client.kept


async def test_nobody_computes_without_a_bank(rig: Rig) -> None:
    """Not even a job that has no memory: it might touch pages of the bank that it had."""
    holder, client = rig.attach(), rig.attach()
    rig.do(commands.GrantTurn(1, holder.job.id))
    rig.offload(client, stored=0)
    rig.do(commands.NameSuccessor(1, holder.job.id, client.job.id))
    assert holder.seat.get("successor") == 0
    rig.do(commands.GrantMemory(client.job.id, SOME))
    rig.do(commands.NameSuccessor(1, holder.job.id, client.job.id))
    assert holder.seat.get("successor") == client.seat.slot + 1
    rig.do(commands.NameSuccessor(1, holder.job.id, None))
    rig.offload(client, stored=0)
    rig.do(commands.GrantTurn(1, client.job.id))
    assert client.job.bank is not None and client.seat.get("turn") == 1


async def test_what_a_dead_job_had_is_free(rig: Rig) -> None:
    first, second, other = rig.attach(), rig.attach(), rig.attach(1001)
    for client in (first, second, other):
        use(rig, client, MIB)
        os.pwrite(client.fds[3], b"x" * MIB, 0)
    rig.do(commands.Offload(second.job.id))  # in the middle of it
    rig.seating.unseat(second.job)
    assert not second.kept and second.job.bank is None and not second.job.offloading
    assert (rig.device.used_bytes(), rig.device.stored_bytes()) == (3 * MIB, 2 * MIB)
    rig.seating.unseat(first.job)  # nobody of this owner is left
    assert (rig.device.used_bytes(), rig.device.stored_bytes()) == (MIB, MIB)


async def test_free_banks_are_emptied(rig: Rig) -> None:
    clients = [rig.attach() for _ in range(3)]
    for client in clients:
        use(rig, client, CAPACITY // 2)
    await Reclaim({"host0": rig.device}, lambda device: rig.device.capacity).empty(rig.device)
    assert rig.device.used_bytes() == CAPACITY * 3 // 2
    rig.offload(clients[0])
    await Reclaim({"host0": rig.device}, lambda device: rig.device.capacity).empty(rig.device)
    assert rig.device.used_bytes() == CAPACITY


# Answers


async def test_a_job_is_asked(rig: Rig, client: Client) -> None:
    bell = client.seat.get("bell")
    rig.do(commands.Offload(client.job.id))
    assert client.seat.get("offload") == OffloadState.ASKED and client.seat.get("bell") != bell
    assert rig.watched == [client.job.id]


async def test_the_core_hears_how_much_is_stored_before_it_hears_that_it_is(rig: Rig, client: Client) -> None:
    sampled, offloaded = rig.offload(client, stored=3 * MIB)
    assert sampled.usage.stored == 3 * MIB  # type: ignore[union-attr]
    assert offloaded == Offloaded(client.job.id)
    assert client.seat.get("offload") == OffloadState.NO


async def test_an_error_is_told_in_words(rig: Rig, client: Client) -> None:
    for number, text in ((errno.ENOSPC, "No space left on device"), (2**63, "Unknown error")):
        rig.do(commands.Offload(client.job.id))
        (event,) = rig.says(client, PacketType.OFFLOADED, number)
        assert isinstance(event, OffloadFailed) and text in event.text
        assert client.job.bank == client.setup.e and client.seat.get("offload") == OffloadState.NO


async def test_nobody_asked(rig: Rig, client: Client) -> None:
    client.seat.set("offloaded", 1)
    assert rig.says(client, PacketType.OFFLOADED, 0) == []
    assert client.job.bank is not None


@pytest.mark.parametrize(("offloaded", "stored"), [(0, MIB), (1, MIB - 1)])
async def test_it_has_come_back_since(rig: Rig, client: Client, offloaded: int, stored: int) -> None:
    """A predecessor had read its name just before the core named another one."""
    rig.do(commands.Offload(client.job.id))
    client.seat.set("offloaded", offloaded)
    client.seat.set("stored", stored)
    assert kinds(rig.says(client, PacketType.OFFLOADED, 0, MIB)) == [OffloadFailed]
    assert client.job.bank is not None


async def test_it_is_about_to_come_back(rig: Rig) -> None:
    """The same, seen earlier: the turn has reached it, the packet that says so has not reached us."""
    holder, client = rig.attach(), rig.attach()
    rig.do(commands.GrantTurn(1, holder.job.id))
    rig.do(commands.Offload(client.job.id))
    client.seat.set("stored", MIB)
    client.seat.set("offloaded", 1)
    holder.seat.set("turn", 0)
    holder.passes(client)
    client.seat.set("turn", 1)
    events = rig.says(client, PacketType.OFFLOADED, 0, MIB)
    assert [type(event) for event in events] == [TurnPassed, OffloadFailed]
    assert client.job.bank is not None


@pytest.mark.parametrize("by_shim", [False, True])
@pytest.mark.parametrize("ends", ["passes", "passes to nobody", "dies"])
async def test_the_holder_may_have_read_its_name(rig: Rig, by_shim: bool, ends: str) -> None:
    """The holder has let go and not counted yet: nobody can say whose turn it is, so its bank is not free yet."""
    holder, client = rig.attach(), rig.attach()
    rig.do(commands.GrantTurn(1, holder.job.id))
    rig.do(commands.NameSuccessor(1, holder.job.id, client.job.id))
    holder.seat.set("turn", 0)
    rig.do(commands.Offload(client.job.id))
    rig.do(commands.NameSuccessor(1, holder.job.id, None))
    rig.events.clear()
    if by_shim:
        rig.memory.offloads.taken(client.job, None, MIB)
    else:
        client.seat.set("stored", MIB)
        client.seat.set("offloaded", 1)
        rig.says(client, PacketType.OFFLOADED, 0, MIB)
    await asyncio.sleep(0.02)
    assert rig.events == [] and client.job.bank is not None and client.job.offloading
    assert holder.job.id in rig.watched
    if ends == "dies":
        rig.channels.attaching.detach(holder.job)
        assert 1 not in rig.seating.holder
    else:
        holder.passes(client if ends == "passes" else None)
        client.seat.set("turn", int(ends == "passes"))
    await until(lambda: bool(kinds(rig.events)))
    assert kinds(rig.events) == [OffloadFailed if ends == "passes" else Offloaded]
    assert (client.job.bank is None) == (ends != "passes")
    if by_shim:
        assert client.seat.get("offloaded") == int(ends != "passes")
    assert client.seat.get("offload") == OffloadState.NO


async def test_the_holder_may_have_read_the_name_of_one_that_never_came_back(rig: Rig) -> None:
    holder, client = rig.attach(), rig.attach()
    rig.offload(client)
    rig.do(commands.GrantMemory(client.job.id, SOME))
    rig.do(commands.GrantTurn(1, holder.job.id))
    rig.do(commands.NameSuccessor(1, holder.job.id, client.job.id))
    holder.seat.set("turn", 0)
    rig.events.clear()
    rig.do(commands.Offload(client.job.id))
    assert rig.events == [] and client.job.bank is not None
    holder.passes(client)
    client.seat.set("turn", 1)
    await until(lambda: client.seat.get("offload") == OffloadState.ASKED)
    assert client.job.bank is not None


async def test_a_job_that_never_answers(rig: Rig, client: Client) -> None:
    rig.do(commands.Offload(client.job.id))
    rig.events.clear()
    rig.memory.offloads.unanswered(client.job)
    assert kinds(rig.events) == [OffloadFailed] and "did not answer" in str(rig.events[0])
    assert client.seat.get("offload") == OffloadState.NO and client.job.bank == client.setup.e
    client.seat.set("offload", OffloadState.DONE)  # it had just begun to answer
    client.seat.set("offloaded", 1)
    assert rig.says(client, PacketType.OFFLOADED, 0, 0) == []
    rig.memory.offloads.taken(client.job, None, MIB)
    assert rig.events == [] and client.seat.get("offload") == OffloadState.NO and client.job.bank is not None


async def test_an_answer_that_is_only_in_the_seat(rig: Rig, client: Client) -> None:
    rig.do(commands.Offload(client.job.id))
    client.seat.set("offloaded", 1)
    client.seat.set("offload", OffloadState.DONE)
    rig.events.clear()
    rig.memory.offloads.unanswered(client.job)
    assert kinds(rig.events) == [Offloaded] and client.job.bank is None


async def test_asked_again_before_it_had_a_turn(rig: Rig, client: Client) -> None:
    rig.offload(client)
    rig.do(commands.GrantMemory(client.job.id, SOME))
    rig.events.clear()
    rig.do(commands.Offload(client.job.id))
    assert kinds(rig.events) == [Offloaded] and client.job.bank is None
    assert client.seat.get("offload") == OffloadState.NO


async def test_the_store_is_dropped(rig: Rig, client: Client) -> None:
    rig.do(commands.DropStore(client.job.id))
    assert client.seat.get("offload") == OffloadState.DROP
    rig.do(commands.Offload(client.job.id))
    rig.do(commands.DropStore(client.job.id))
    assert client.seat.get("offload") == OffloadState.ASKED
    client.seat.set("offload", OffloadState.DONE)
    client.job.offloading = False
    rig.do(commands.DropStore(client.job.id))
    assert client.seat.get("offload") == OffloadState.DONE


# The shim's answers


async def test_taken_from_outside_counts_once(rig: Rig, client: Client) -> None:
    rig.do(commands.Offload(client.job.id))
    rig.events.clear()
    rig.memory.offloads.taken(client.job, None, 5 * MIB)
    assert kinds(rig.events) == [Offloaded]
    assert [client.seat.get(name) for name in ("stored", "offloaded", "offload")] == [5 * MIB, 1, OffloadState.NO]
    assert client.job.bank is None
    assert rig.says(client, PacketType.OFFLOADED, 0, 5 * MIB) == []  # it was continued, and did it too
    rig.memory.offloads.taken(client.job, None, 5 * MIB)
    assert rig.events == []


async def test_the_job_was_faster_than_its_shim(rig: Rig, client: Client) -> None:
    rig.offload(client, stored=MIB)
    rig.comes_back(client)
    rig.events.clear()
    rig.memory.offloads.taken(client.job, None, 5 * MIB)
    assert rig.events == [] and client.seat.get("stored") == 0


async def test_the_shim_cannot(rig: Rig, client: Client) -> None:
    rig.do(commands.Offload(client.job.id))
    for error in (BUSY, WITHDRAWN):
        rig.memory.offloads.taken(client.job, error, 0)
    assert rig.busy == [client.job.id] and kinds(rig.events) == [] and client.job.offloading
    rig.memory.offloads.taken(client.job, "Cannot allocate memory", 0)
    assert kinds(rig.events) == [OffloadFailed]
    assert client.job.bank == client.setup.e and client.seat.get("offloaded") == 0


async def test_the_shim_took_it_and_a_turn_came_first(rig: Rig, client: Client) -> None:
    """The state bytes tell the job; its seat is not written any more."""
    rig.do(commands.Offload(client.job.id))
    client.seat.set("turn", 1)
    rig.events.clear()
    rig.memory.offloads.taken(client.job, None, MIB)
    assert kinds(rig.events) == [OffloadFailed]
    assert (client.seat.get("stored"), client.seat.get("offloaded")) == (0, 0) and client.job.bank is not None


# No bank to be had


@pytest.mark.parametrize("gone", [False, True])
async def test_a_bank_that_cannot_be_had_now(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gone: bool
) -> None:
    monkeypatch.setattr(grants, "RETRY_S", 0.01)
    rig.offload(client)
    rig.do(commands.GrantMemory(client.job.id, Memory()))
    client.job.grow_seq = 7
    with without_banks(rig.device):
        rig.do(commands.GrantMemory(client.job.id, SOME, answers=MemoryClass.PERSISTENT))
        rig.do(commands.GrantTurn(1, client.job.id))
        await asyncio.sleep(0.05)
        assert [client.seat.get(name) for name in ("p_limit", "turn", "grow_ack")] == [0, 0, 0]
        assert caplog.text.count("too many open files") == 1
        assert client.job.grant_waits is not None and "too many open files" in client.job.grant_waits.text
        assert rig.turns.between(1) == []
        if gone:
            rig.channels.attaching.detach(client.job)
    if gone:
        await asyncio.sleep(0.05)
    else:
        await until(lambda: client.seat.get("turn") == 1)
    assert [client.seat.get(name) for name in ("p_limit", "turn", "grow_ack")] == ([0, 0, 0] if gone else [MIB, 1, 7])
    assert (client.job.bank is None) == gone and not rig.memory.granting.waits(client.job)


# Watching


async def test_an_idle_holder_is_watched_as_long_as_somebody_waits(rig: Rig, client: Client) -> None:
    rig.do(commands.WatchIdle(client.job.id, 5000))
    assert (client.seat.get("watch"), client.seat.get("grace_us")) == (0, 5000)  # it has let go already
    rig.do(commands.GrantTurn(1, client.job.id))
    bell = client.seat.get("bell")
    rig.do(commands.WatchIdle(client.job.id, 7000))
    assert (client.seat.get("watch"), client.seat.get("grace_us")) == (1, 7000) and client.seat.get("bell") != bell
    rig.do(commands.RequestYield(client.job.id))
    assert client.seat.get("yield") == 1 and rig.watched == [client.job.id]
    rig.do(commands.WithdrawYield(client.job.id))
    assert (client.seat.get("watch"), client.seat.get("yield")) == (0, 0)
    rig.do(commands.WatchIdle(client.job.id, 7000))
    rig.do(commands.GrantTurn(1, client.job.id))
    assert client.seat.get("watch") == 0
    rig.do(commands.RequestYield(client.job.id, forced=True))
    assert rig.watched == 2 * [client.job.id]
    for grace, written in ((2**40, 2**32 - 1), (-1, 0)):
        rig.do(commands.WatchIdle(client.job.id, grace))
        assert client.seat.get("grace_us") == written


async def test_what_a_job_writes_is_bounded_by_what_can_be(rig: Rig, client: Client) -> None:
    seated = client.job.seated
    assert seated is not None
    os.pwrite(seated.store_fd, b"x" * MIB, 0)
    for name in ("in_us", "out_us", "store_bytes", "stored", "held_us", "in_bytes", "p_peak"):
        client.seat.set(name, 2**64 - 1)
    client.seat.set("turn", 1)
    usage = usage_of(client.job, seated.since_us + 1000)
    assert (usage.in_us, usage.out_us, usage.kept) == (1000, 1000, MIB)
    assert usage.stored <= os.fstat(seated.store_fd).st_size
    assert max(dataclasses.astuple(usage)) < 2**60


async def test_a_background_error_is_logged_and_tried_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(overuse, "RECLAIM_S", 0.001)
    monkeypatch.setattr(overuse, "RETRY_S", 0.001)

    def fail(usable: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(rig.device, "surplus", fail)
    task = asyncio.create_task(Reclaim({"host0": rig.device}, lambda device: rig.device.capacity).run())
    await until(lambda: caplog.text.count("Too many open files") >= 2)
    assert not task.done()
    task.cancel()


# After a restart


def adopted(rig: Rig, *clients: Client) -> Rig:
    """Another daemon, which gets what the shims keep."""
    other = Rig()
    for client in clients:
        job = other.job(client.job.owner)
        kept = {name: os.dup(fd) for name, fd in client.kept.items()}
        assert not other.channels._adopting.adopt(job, kept, client.job.seated.pid)  # type: ignore[union-attr]
        other.shims[job.id] = {name: os.dup(fd) for name, fd in client.kept.items()}
    for job in other.jobs.live.values():
        other.memory.offloads.adopt(job)
        other.memory.banking.adopt(job)
    return other


async def test_who_holds_which_bank_is_found_again(rig: Rig) -> None:
    first, second, third = rig.attach(), rig.attach(), rig.attach()
    use(rig, first, MIB)
    rig.offload(first)
    rig.offload(second)
    rig.comes_back(second)  # in the bank of the first: two seats name it now
    assert second.seat.get("bank") == first.seat.get("bank") != third.seat.get("bank")
    other = adopted(rig, first, second, third)
    banks = [job.bank for job in other.jobs.live.values()]
    assert banks == [None, second.job.bank, third.job.bank]
    other.do(commands.GrantMemory(1, SOME))
    assert other.jobs.live[1].bank not in (None, *banks)
    assert other.device.used_bytes() == MIB and other.jobs.live[1].kept_banks == {other.jobs.live[1].bank}
    other.close()


async def test_a_job_that_has_its_turn_but_not_its_memory_holds_its_bank(rig: Rig, client: Client) -> None:
    rig.offload(client)
    rig.do(commands.GrantMemory(client.job.id, SOME))
    client.seat.set("turn", 1)
    other = adopted(rig, client)
    assert other.jobs.live[1].bank == client.seat.get("bank")
    other.close()


async def test_no_turn_while_an_earlier_daemons_request_is_unanswered(rig: Rig) -> None:
    client, holder = rig.attach(), rig.attach()
    rig.do(commands.Offload(client.job.id))
    other = adopted(rig, client, holder)
    job, seat = other.jobs.live[1], client.seat
    assert job.offloading and other.watched == [1, 2]
    other.do(commands.GrantTurn(1, 2))
    other.do(commands.NameSuccessor(1, 2, 1))
    assert holder.seat.get("successor") == 0
    other.do(commands.GrantTurn(1, 1))
    assert seat.get("turn") == 0
    seat.set("stored", MIB)
    seat.set("offloaded", 1)
    other.memory.offloads.taken(job, None, MIB)
    assert seat.get("turn") == 1 and job.bank == seat.get("bank")
    assert kinds(other.events) == [OffloadFailed]  # the core says that it computes, and so it does
    other.close()


@pytest.mark.parametrize("lacks", [("bank", "store"), ()], ids=["another version", "another bank than the seat's"])
async def test_what_is_not_kept_is_not_taken_over(rig: Rig, client: Client, lacks: tuple[str, ...]) -> None:
    kept = {name: os.dup(fd) for name, fd in client.kept.items() if name.split(":")[0] not in lacks}
    client.seat.set("bank", client.seat.get("bank") if lacks else 77)
    assert Rig().channels._adopting.adopt(rig.job(), kept, 1)


@pytest.mark.parametrize("kind", ["bank", "store", "board"])
async def test_what_does_not_fit_is_not_taken_over(rig: Rig, kind: str) -> None:
    client, other = rig.attach(), Rig()
    size = next(os.fstat(fd).st_size for name, fd in client.kept.items() if name.startswith(kind))
    for wrong in (size, size - 1):  # the right size, but no seals; the wrong size
        kept = {name: os.dup(fd) for name, fd in client.kept.items() if not name.startswith(kind)}
        name = next(name for name in client.kept if name.startswith(kind))
        kept[name] = os.memfd_create("forged", os.MFD_ALLOW_SEALING)
        os.ftruncate(kept[name], wrong)
        assert other.channels._adopting.adopt(other.job(), kept, 1)
    other.close()
