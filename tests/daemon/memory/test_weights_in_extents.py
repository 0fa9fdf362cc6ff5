"""Weights on a CUDA device: sent once, taken back from everybody, found again after a restart.  On the stub driver."""

from __future__ import annotations

import asyncio
import os

import pytest

from carpool.core import commands
from carpool.core.events import WeightsFound
from carpool.core.model import MIB, Settings
from carpool.daemon.memory import weights
from carpool.daemon.memory.weights import HEADER
from carpool.daemon.seats.kept_fds import weights_name
from carpool.devices import memfd
from carpool.protocol.seat import PacketType, Placed
from tests.daemon.cuda_rig import Mapped, cuda_rig, grant, limits, packets
from tests.daemon.cuda_rig_fixture import rig
from tests.daemon.memory.test_weights import DEMAND, KEY, NAME, answered, demands
from tests.daemon.rig import Client, Rig
from tests.devices.cuda_stub import CONTEXT, Stub

__all__ = ["rig"]

SIZE = DEMAND.size
FILE = weights_name("cuda0", DEMAND)
FIRST, SECOND = (f"weights-extent:cuda0:{NAME}:{number}:{SIZE}" for number in (1, 2))
SENT = [(PacketType.WEIGHTS, KEY, SIZE, 0, 0), (PacketType.WEIGHTS, KEY, SIZE, 1, 1)]
AGAIN = (PacketType.WEIGHTS, KEY, SIZE, 1, 2)  # another extent
CUT = (PacketType.CUT, KEY, 2, 0, 0)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "wall_us", lambda: 0)


def worker(rig: Rig, owner: int = 1000) -> Client:
    return rig.attach(owner, service=100)


def place(rig: Rig, client: Client, size: int = SIZE) -> None:
    demands(rig, client, size)
    rig.do(commands.PlaceWeights("cuda0", client.job.owner, NAME, size, client.job.id))


def drop(rig: Rig) -> None:
    rig.do(commands.DropWeights("cuda0", 1000, NAME))


def header(client: Client) -> bytes:
    return os.pread(client.kept[FILE], memfd.PAGE, 0)


def inode(client: Client) -> int:
    return os.fstat(client.kept[FILE]).st_ino


async def test_a_worker_is_sent_a_header_and_an_extent_once(rig: Rig, stub: Stub) -> None:
    client = worker(rig)
    place(rig, client)
    assert client.seat.get("placed") == Placed.YES and answered(client)
    assert packets(client) == SENT and {FILE, FIRST} < set(client.kept)
    assert memfd.is_sealed(client.kept[FILE], SIZE) and stub.used() == SIZE + CONTEXT
    place(rig, client)
    assert answered(client) and packets(client) == []


async def test_workers_of_an_owner_share_them(rig: Rig, stub: Stub) -> None:
    first, second, other = worker(rig), worker(rig), worker(rig, 1001)
    for client in (first, second, other):
        place(rig, client)
        assert packets(client) == SENT
    assert inode(first) == inode(second) != inode(other)
    assert stub.used() == 2 * SIZE + CONTEXT


async def test_dropped_weights_are_taken_back_from_all(rig: Rig, stub: Stub) -> None:
    clients = [worker(rig), worker(rig)]
    for client in clients:
        place(rig, client)
        packets(client)
    os.pwrite(clients[0].kept[FILE], b"\1" * memfd.PAGE, 0)
    drop(rig)
    assert header(clients[0]) == HEADER
    for client in clients:
        assert packets(client) == [CUT] and FIRST not in client.kept and FILE in client.kept
    stub.wait_until_free()  # nobody in this test has mapped it
    place(rig, clients[0])
    assert packets(clients[0]) == [AGAIN] and SECOND in clients[0].kept  # the header is known
    drop(rig)
    drop(rig)
    assert packets(clients[0]) == [CUT] and packets(clients[1]) == []


async def test_memory_that_others_have_not_let_go_of_is_waited_for(rig: Rig, stub: Stub) -> None:
    client, job = worker(rig), rig.attach()
    mapped = Mapped(rig, job)
    grant(rig, job, 200 * MIB, 0)
    mapped.answer()
    place(rig, client, 100 * MIB)
    assert not answered(client)
    rig.do(commands.GrantTurn(client.job.lane or 0, client.job.id))
    assert not client.seat.get("turn") and client.job.grant_waits is not None
    grant(rig, job, 100 * MIB, 0)
    assert not answered(client)
    mapped.answer()
    await asyncio.sleep(0)
    assert answered(client) and client.seat.get("turn")
    packets(client)


async def test_memory_that_was_dropped_is_for_jobs(rig: Rig) -> None:
    client, job = worker(rig), rig.attach()
    place(rig, client, 100 * MIB)
    packets(client)
    drop(rig)
    grant(rig, job, 200 * MIB, 0)
    assert limits(job)[0] == 200 * MIB


async def test_other_weights_of_the_same_key_are_made_anew(rig: Rig) -> None:
    client = worker(rig)
    place(rig, client)
    packets(client)
    place(rig, client, 2 * SIZE)
    assert packets(client) == [CUT] + [(kind, key, 2 * SIZE, which, d) for kind, key, _, which, d in SENT]


async def test_what_nobody_has_and_is_not_there_is_closed(rig: Rig) -> None:
    client = worker(rig)
    place(rig, client)
    rig.seating.unseat(client.job)
    assert not {FILE, FIRST} & set(client.kept) and rig.memory.weights.table
    drop(rig)
    rig.memory.weights.tidy()
    assert not rig.memory.weights.table


async def test_what_shims_have_kept_is_found_again(rig: Rig, stub: Stub) -> None:
    """The latest extent counts; who has an earlier one lets go of it."""
    before = cuda_rig()
    first, second = worker(before), worker(before)
    place(before, first)
    held = {name: os.dup(fd) for name, fd in first.kept.items()}
    drop(before)
    place(before, second)
    mine, theirs = worker(rig), worker(rig)
    files = rig.memory.found_weights
    for client, kept in ((mine, held), (theirs, second.kept)):
        for name in (FILE, FIRST, SECOND):
            if name in kept:
                files.adopt(client.job, name, os.dup(kept[name]))
    before.close()
    assert list(files.found()) == [WeightsFound("cuda0", 1000, NAME, SIZE, 700)]
    assert packets(mine) == [CUT] and packets(theirs) == [] and mine.job.weights == {FILE}
    for client in (mine, theirs):
        place(rig, client)
        assert packets(client) == [SENT[0], AGAIN]  # nobody knows what had been sent
    for fd in held.values():
        os.close(fd)


async def test_without_its_extent_nothing_is_there(rig: Rig) -> None:
    client, files = worker(rig), rig.memory.found_weights
    fd = memfd.create("weights", SIZE, sealed=True)
    os.pwrite(fd, b"\1" * memfd.PAGE, 0)
    files.adopt(client.job, FILE, os.dup(fd))
    assert list(files.found()) == [] and os.pread(fd, memfd.PAGE, 0) == HEADER
    os.close(fd)


async def test_what_is_no_device_memory_is_refused(rig: Rig) -> None:
    job, files = worker(rig).job, rig.memory.found_weights
    fd = memfd.create("weights", SIZE, sealed=True)
    with pytest.raises(ValueError, match="belongs to no weights"):
        files.adopt(job, FIRST, fd)
    files.adopt(job, FILE, os.dup(fd))
    with pytest.raises(ValueError, match="is not memory of cuda0"):
        files.adopt(job, FIRST, fd)
    os.close(fd)


async def test_jobs_beside_a_service_run_little_ahead(rig: Rig) -> None:
    job = rig.attach()
    assert job.seat.get("ahead_us") == 0
    bell = job.seat.get("bell")
    service, another = worker(rig), rig.attach()
    assert job.seat.get("bell") != bell
    assert [client.seat.get("ahead_us") for client in (job, service, another)] == [2000, 0, 2000]
    rig.seating.apply(Settings(run_ahead_us=500))
    assert job.seat.get("ahead_us") == 500
    rig.seating.unseat(service.job)
    assert [client.seat.get("ahead_us") for client in (job, another)] == [0, 0]
