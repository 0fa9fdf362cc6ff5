"""The memory of weights: who is sent it, when it is emptied, and what is left of it after a restart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable

import pytest
from rig import Client, Rig

from carpool.core import commands
from carpool.core.events import TurnWanted, WeightsFound
from carpool.core.model import MIB, Demand
from carpool.daemon.keepsakes import weights_name
from carpool.devices import memfd
from carpool.protocol.seat import PacketType, Placed

KEY = 0xABC
NAME = f"{KEY:016x}"
SIZE = 2 * MIB
DEMAND = Demand(NAME, SIZE, 700, 30, 5_000_000)
KEPT = weights_name("host0", DEMAND)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def worker(rig: Rig, owner: int = 1000) -> Client:
    return rig.attach(owner, service=100)


def demands(rig: Rig, client: Client, size: int = SIZE) -> list[object]:
    words = {"weights": KEY, "weights_bytes": size, "reload_us": 700, "compute_us": 30, "deadline_us": 5_000_000}
    number = client.seat.get("demand_seq") + 1
    for word, value in (words | {"demand_seq": number, "want": 1}).items():
        client.seat.set(word, value)
    return list(rig.says(client, PacketType.WANT, number))


def place(rig: Rig, client: Client, size: int = SIZE) -> None:
    rig.do(commands.PlaceWeights("host0", client.job.owner, NAME, size, client.job.id))


def answered(client: Client) -> bool:
    return client.seat.get("placed_seq") == client.seat.get("demand_seq")


async def until(true: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if true():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it never came to that")


def sent(client: Client) -> int:
    """The descriptor of the memory."""
    packet, (fd,) = client.receive()
    assert (packet.type, packet.a, packet.b) == (PacketType.WEIGHTS, KEY, SIZE)
    return fd


async def test_a_demand_is_told_and_answered_with_the_memory(rig: Rig) -> None:
    client = worker(rig)
    assert demands(rig, client) == [TurnWanted(client.job.id, demand=DEMAND)]
    place(rig, client)
    assert client.seat.get("placed") == Placed.YES and answered(client)
    fd = sent(client)
    assert memfd.is_sealed(fd, SIZE)
    assert os.fstat(client.kept[KEPT]).st_ino == os.fstat(fd).st_ino
    os.close(fd)


async def test_whoever_has_the_memory_is_not_sent_it_again(rig: Rig) -> None:
    first, second = worker(rig), worker(rig)
    files = []
    for client in (first, second):
        demands(rig, client)
        place(rig, client)
        files.append(sent(client))
        demands(rig, client)
        place(rig, client)
        assert answered(client) and client.silent()
    assert len({os.fstat(fd).st_ino for fd in files}) == 1
    for fd in files:
        os.close(fd)


async def test_another_owner_has_memory_of_its_own(rig: Rig) -> None:
    files = []
    for client in (worker(rig, 1000), worker(rig, 1001)):
        demands(rig, client)
        place(rig, client)
        files.append(sent(client))
    assert len({os.fstat(fd).st_ino for fd in files}) == 2
    for fd in files:
        os.close(fd)


async def test_dropped_memory_is_empty_before_anybody_gets_it_again(rig: Rig) -> None:
    client = worker(rig)
    demands(rig, client)
    place(rig, client)
    fd = sent(client)
    os.pwrite(fd, bytes([1]) * SIZE, 0)
    rig.do(commands.DropWeights("host0", 1000, NAME))
    assert os.pread(fd, memfd.PAGE, 0) == bytes(memfd.PAGE)  # at once
    demands(rig, client)
    place(rig, client)
    rig.do(commands.GrantTurn(1, client.job.id))
    assert answered(client) or not client.seat.get("turn")  # the turn does not come before the answer
    await until(lambda: answered(client))
    assert memfd.pages(fd) == 0 and client.silent()
    assert client.seat.get("turn") == 1
    os.close(fd)


async def test_memory_that_nobody_has_is_closed(rig: Rig) -> None:
    client = worker(rig)
    demands(rig, client)
    place(rig, client)
    os.close(sent(client))
    rig.seating.unseat(client.job)
    assert KEPT not in client.kept
    rig.do(commands.DropWeights("host0", 1000, NAME))
    await until(lambda: not rig.channels.weights._files)


async def test_what_can_never_be_is_answered(rig: Rig) -> None:
    client = worker(rig)
    for code, answer in (("too_large", Placed.TOO_LARGE), ("changed", Placed.CHANGED)):
        demands(rig, client)
        rig.do(commands.DenyTurn(client.job.id, commands.Reason(code, "why")))
        assert client.seat.get("placed") == answer and answered(client)


async def test_a_job_that_is_no_service_has_no_demands(rig: Rig) -> None:
    client = rig.attach()
    assert demands(rig, client) == [TurnWanted(client.job.id)]
    assert client.seat.get("placed") == Placed.NO_SERVICE and answered(client)


async def test_wants_that_are_over_are_not_told(rig: Rig) -> None:
    """Packets of before a restart: an earlier demand, and one that has been met."""
    client = worker(rig)
    for _ in range(2):
        demands(rig, client)
    assert rig.says(client, PacketType.WANT, client.seat.get("demand_seq") - 1) == []
    client.seat.set("want", 0)
    assert rig.says(client, PacketType.WANT, client.seat.get("demand_seq")) == []


async def test_a_want_that_has_its_turn_is_not_told_again(rig: Rig) -> None:
    """A daemon that was started again found it in the seat, before it read the packet; the job has not woken up yet."""
    client = worker(rig)
    demands(rig, client)
    place(rig, client)
    client.seat.set("turn", 1)
    number = client.seat.get("demand_seq")
    assert rig.says(client, PacketType.WANT, number) == rig.says(client, PacketType.WANT, 0) == []
    assert len(demands(rig, client)) == 1, "the turn is for the demand before, and goes back"


async def test_what_shims_have_kept_is_found_again(rig: Rig) -> None:
    job, other, files = rig.job(), rig.job(), rig.channels.weights
    fd = memfd.create("weights", SIZE, sealed=True)
    files.adopt(job, KEPT, os.dup(fd))
    files.adopt(other, KEPT, os.dup(fd))
    assert list(files.found()) == []  # nothing is in it
    os.pwrite(fd, b"x", 0)
    assert list(files.found()) == [WeightsFound("host0", 1000, NAME, SIZE, 700)]
    os.close(fd)


async def test_what_is_not_that_memory_is_refused(rig: Rig) -> None:
    job, files = rig.job(), rig.channels.weights
    for name, size, sealed in ((KEPT, SIZE, False), (KEPT, MIB, True), ("weights:host0", SIZE, True)):
        fd = memfd.create("weights", size, sealed=sealed)
        with pytest.raises(ValueError):
            files.adopt(job, name, fd)
        os.close(fd)
