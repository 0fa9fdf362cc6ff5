"""The memory of weights: who is sent it, when it is emptied, and what is left of it after a restart."""

from __future__ import annotations

import os

import pytest

from carpool.core import commands
from carpool.core.events import TurnWanted, WeightsFound
from carpool.core.model import MIB, Demand
from carpool.daemon.seats.kept_fds import weights_name
from carpool.devices import memfd
from carpool.protocol.seat import PacketType, Placed
from tests.daemon.rig import Client, Rig

KEY, OTHER = 0xABC, 0xDEF
NAME = f"{KEY:016x}"
SIZE = 2 * MIB
DEMAND = Demand(NAME, SIZE, 700, 30, 5_000_000)


def kept(client: Client) -> str:
    """Under what name its shim keeps the memory."""
    (name,) = (name for name in client.kept if name.startswith("weights:"))
    return name


def worker(rig: Rig, owner: int = 1000) -> Client:
    return rig.attach(owner, service=100)


def demands(rig: Rig, client: Client, size: int = SIZE, key: int = KEY) -> list[object]:
    words = {"weights": key, "weights_bytes": size, "reload_us": 700, "compute_us": 30, "deadline_us": 5_000_000}
    number = client.seat.get("demand_seq") + 1
    for word, value in (words | {"demand_seq": number, "want": 1}).items():
        client.seat.set(word, value)
    return list(rig.says(client, PacketType.WANT, number))


def place(rig: Rig, client: Client, size: int = SIZE, key: int = KEY) -> None:
    rig.do(commands.PlaceWeights("host0", client.job.owner, f"{key:016x}", size, client.job.id))


def done(client: Client) -> None:
    """It has computed what its turn was for."""
    client.seat.set("weights", 0)


def answered(client: Client) -> bool:
    return client.seat.get("placed_seq") == client.seat.get("demand_seq")


def sent(client: Client) -> int:
    """The descriptor of the memory."""
    packet, (fd,) = client.receive()
    assert (packet.type, packet.a, packet.b) == (PacketType.WEIGHTS, KEY, SIZE)
    return fd


def given(rig: Rig, client: Client) -> int:
    """The memory that the worker has been sent when it wanted its weights."""
    demands(rig, client)
    place(rig, client)
    return sent(client)


async def test_a_demand_is_told_and_answered_with_the_memory(rig: Rig) -> None:
    client = worker(rig)
    assert demands(rig, client) == [TurnWanted(client.job.id, demand=DEMAND)]
    place(rig, client)
    assert client.seat.get("placed") == Placed.YES and answered(client)
    fd = sent(client)
    assert os.fstat(fd).st_size >= SIZE and memfd.is_sealed(fd, os.fstat(fd).st_size)
    assert os.fstat(client.kept[kept(client)]).st_ino == os.fstat(fd).st_ino


async def test_whoever_has_the_memory_is_not_sent_it_again(rig: Rig) -> None:
    first, second = worker(rig), worker(rig)
    files = []
    for client in (first, second):
        files.append(given(rig, client))
        demands(rig, client)
        place(rig, client)
        assert answered(client) and client.silent()
    assert len({os.fstat(fd).st_ino for fd in files}) == 1


async def test_another_owner_has_memory_of_its_own(rig: Rig) -> None:
    files = [given(rig, worker(rig, owner)) for owner in (1000, 1001)]
    assert len({os.fstat(fd).st_ino for fd in files}) == 2


def brought(rig: Rig, client: Client) -> int:
    """The same, which it has filled."""
    fd = given(rig, client)
    os.pwrite(fd, bytes([1]) * SIZE, 0)
    return fd


async def test_dropped_memory_is_that_of_the_owners_next_weights(rig: Rig) -> None:
    client, other = worker(rig), worker(rig)
    fd = brought(rig, client)
    done(client)
    rig.do(commands.DropWeights("host0", 1000, NAME))
    assert os.pread(fd, memfd.PAGE, 0) == bytes(memfd.PAGE)  # nothing is there
    assert "weights-bank:host0:1" in client.kept and not any(name.startswith("weights:") for name in client.kept)
    packet, fds = client.receive()
    assert (packet.type, packet.a, packet.b, fds) == (PacketType.CUT, KEY, 2, [])
    demands(rig, other, key=OTHER)
    place(rig, other, key=OTHER)
    packet, (same,) = other.receive()
    assert (packet.type, packet.a) == (PacketType.WEIGHTS, OTHER)
    assert os.fstat(same).st_ino == os.fstat(fd).st_ino and memfd.pages(same) == SIZE
    assert "weights-bank:host0:1" not in client.kept
    demands(rig, client)
    place(rig, client)  # and now they come somewhere else
    fresh = sent(client)
    assert os.fstat(fresh).st_ino != os.fstat(fd).st_ino


async def test_nobody_gets_memory_that_a_worker_may_still_write(rig: Rig) -> None:
    """Its promise was made by a daemon that was killed; it goes on where it is, and is somewhere else the next time."""
    client, other = worker(rig), worker(rig)
    fd = brought(rig, client)
    rig.do(commands.DropWeights("host0", 1000, NAME))
    assert os.pread(fd, SIZE, 0) == bytes([1]) * SIZE
    demands(rig, other, key=OTHER)
    place(rig, other, key=OTHER)
    _, (another,) = other.receive()
    assert os.fstat(another).st_ino != os.fstat(fd).st_ino
    assert client.receive()[0].type == PacketType.CUT
    fresh = given(rig, client)
    assert len({os.fstat(each).st_ino for each in (fd, another, fresh)}) == 3
    assert rig.device.used_bytes() < SIZE


async def test_memory_never_changes_its_owner(rig: Rig) -> None:
    first, second = worker(rig, 1000), worker(rig, 1001)
    fd = given(rig, first)
    rig.do(commands.DropWeights("host0", 1000, NAME))
    other = given(rig, second)
    assert os.fstat(other).st_ino != os.fstat(fd).st_ino and memfd.pages(other) <= memfd.PAGE


async def test_memory_of_dropped_weights_goes_with_the_owners_last_service(rig: Rig) -> None:
    client = worker(rig)
    brought(rig, client)
    rig.seating.unseat(client.job)
    assert not any(name.startswith("weights:") for name in client.kept)
    assert rig.device.used_bytes() >= SIZE
    rig.do(commands.DropWeights("host0", 1000, NAME))
    assert rig.device.used_bytes() < SIZE and not rig.memory.weights.table


async def test_what_can_never_be_is_answered(rig: Rig) -> None:
    client = worker(rig)
    for code, answer in (("too_large", Placed.TOO_LARGE), ("changed", Placed.CHANGED)):
        demands(rig, client)
        rig.do(commands.DenyTurn(client.job.id, commands.Reason(code, "why")))
        assert client.seat.get("placed") == answer and answered(client)


async def test_a_job_that_is_no_service_has_no_demands(rig: Rig, client: Client) -> None:
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


def bank(rig: Rig) -> int:
    """A descriptor of memory as it would be for a bank of weights."""
    return memfd.create("weights", rig.device.window, sealed=True)


def found(key: str = NAME) -> WeightsFound:
    return WeightsFound("host0", 1000, key, SIZE, 700)


async def test_what_shims_have_kept_is_found_again(rig: Rig) -> None:
    job, other, files = rig.job(), rig.job(), rig.memory.found_weights
    fd, name = bank(rig), weights_name("host0", DEMAND, 3, 17)
    files.adopt(job, name, os.dup(fd))
    files.adopt(other, name, fd)
    assert list(files.found()) == [found()]
    assert job.weights == other.weights == {name}


async def test_of_what_shims_have_kept_the_last_counts(rig: Rig) -> None:
    """They had not been told that weights were dropped, and that others have the memory."""
    jobs, files = [rig.job() for _ in range(3)], rig.memory.found_weights
    first, second = bank(rig), bank(rig)
    others = Demand(f"{OTHER:016x}", SIZE, 700, 30, 5_000_000)
    stale = weights_name("host0", DEMAND, 3, 17)
    moved, taken = weights_name("host0", DEMAND, 4, 19), weights_name("host0", others, 3, 18)
    for job, name, fd in zip(jobs, (stale, moved, taken), (first, second, os.dup(first)), strict=True):
        files.adopt(job, name, fd)
    assert set(files.found()) == {found(), found(others.weights)}
    assert [job.weights for job in jobs] == [set(), {moved}, {taken}]


async def test_free_banks_outlive_the_daemon(rig: Rig) -> None:
    """Otherwise nobody would count their pages, which workers still have."""
    jobs, client, files = [rig.job(), rig.job()], worker(rig), rig.memory.found_weights
    fd, other = bank(rig), bank(rig)
    os.pwrite(fd, bytes([1]) * SIZE, 0)
    name, taken, free = weights_name("host0", DEMAND, 4, 17), "weights-bank:host0:4", "weights-bank:host0:3"
    files.adopt(jobs[0], free, os.dup(fd))
    files.adopt(jobs[0], taken, os.dup(other))
    files.adopt(jobs[1], name, other)
    assert list(files.found()) == [found()]
    assert [job.weights for job in jobs] == [{free}, {name}]
    assert rig.device.used_bytes() >= SIZE
    demands(rig, client, key=OTHER)
    place(rig, client, key=OTHER)
    _, (same,) = client.receive()
    assert os.fstat(same).st_ino == os.fstat(fd).st_ino and not jobs[0].weights
    os.close(fd)


async def test_a_bank_of_nobody_is_free(rig: Rig) -> None:
    """After a restart, too; what weights before have left there is not taken for these."""
    job, client, files = rig.job(), worker(rig), rig.memory.found_weights
    fd = bank(rig)
    os.pwrite(fd, bytes([1]) * SIZE, 0)
    files.adopt(job, weights_name("host0", DEMAND, 3, 17), os.dup(fd))
    assert list(files.found()) == [found()]
    rig.do(commands.DropWeights("host0", 1000, NAME))
    same = given(rig, client)
    assert os.fstat(same).st_ino == os.fstat(fd).st_ino
    assert os.pread(same, memfd.PAGE, 0) == bytes(memfd.PAGE)
    os.close(fd)


async def test_what_is_not_that_memory_is_refused(rig: Rig) -> None:
    job, files, name = rig.job(), rig.memory.found_weights, weights_name("host0", DEMAND, 3, 17)
    window = rig.device.window
    for given, size, sealed in (
        (name, window, False),
        (name, MIB, True),
        (weights_name("host0", DEMAND, 0, 17), window, True),
        (weights_name("host9", DEMAND, 3, 17), window, True),
        ("weights:host0", window, True),
        ("weights-bank:host0:3", MIB, True),
        ("weights-bank:host9:3", window, True),
        ("weights-bank:host0", window, True),
    ):
        fd = memfd.create("weights", size, sealed=sealed)
        with pytest.raises(ValueError):
            files.adopt(job, given, fd)
        os.close(fd)
