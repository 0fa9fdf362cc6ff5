"""Who takes memory beyond what was granted loses it; who keeps to the limits never does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from carpool.core import commands
from carpool.core.model import MIB, Memory
from carpool.daemon.memory import overuse
from carpool.daemon.memory.overuse import LOOKS, TOLERANCE
from carpool.devices.base import single
from tests.daemon.rig import CAPACITY, Client, Rig

TOLERATED = CAPACITY // TOLERANCE
TOO_MUCH = 2 * TOLERATED
LANE, BANK = 1, 2  # their places among what SETUP brings


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that may be killed in the place of the tests' own."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process.pid
    process.kill()
    process.wait()


def write(client: Client, place: int, begin: int, size: int) -> None:
    os.pwrite(client.fds[place], b"x" * size, begin)


def grant(rig: Rig, client: Client, persistent: int) -> None:
    rig.do(commands.GrantMemory(client.job.id, Memory(persistent, MIB)))


def looks(rig: Rig, count: int = LOOKS) -> None:
    for _ in range(count):
        rig.built.overuse.look()


def killed(*clients: Client) -> list[bool]:
    return [client.job.fault is not None for client in clients]


async def test_the_holder_of_a_buffer_is_ended_with_the_reason(rig: Rig, sleeper: int) -> None:
    hog, same, other = rig.attach(pid=sleeper), rig.attach(), rig.attach(1001)
    grant(rig, hog, MIB)
    write(hog, BANK, 0, MIB + TOO_MUCH)
    looks(rig, LOOKS - 1)
    assert killed(hog, same, other) == [False] * 3
    looks(rig, 1)
    assert killed(hog, same, other) == [True, False, False]
    fault = hog.job.fault
    assert fault is not None and fault.code == "overuse"
    assert fault.text == "killed by Carpool: device buffer 1 of host0 holds 4 MiB more than was granted"


async def test_all_jobs_of_a_lane_are_ended(rig: Rig, sleeper: int) -> None:
    one, same, other = rig.attach(pid=sleeper), rig.attach(pid=sleeper), rig.attach(1001)
    write(one, LANE, 8 * MIB, TOO_MUCH)
    looks(rig)
    assert killed(one, same, other) == [True, True, False]


async def test_who_is_ended_is_named_once(rig: Rig, sleeper: int, caplog: pytest.LogCaptureFixture) -> None:
    write(rig.attach(pid=sleeper), LANE, 8 * MIB, TOO_MUCH)
    looks(rig, 3 * LOOKS)
    assert [record.getMessage() for record in caplog.records] == [
        "job 1 is killed: lane 1 of host0 holds 3 MiB more than was granted"
    ]


async def test_what_is_granted_is_no_overuse(rig: Rig, client: Client) -> None:
    grant(rig, client, 8 * MIB)
    rig.do(commands.ResizeLane(1, 8 * MIB))
    for place in (LANE, BANK):
        write(client, place, 0, 8 * MIB)
    looks(rig)
    assert killed(client) == [False]


async def test_a_little_is_tolerated_in_all_files_of_a_user_together(rig: Rig, sleeper: int) -> None:
    clients = [rig.attach(pid=sleeper), rig.attach(pid=sleeper)]
    write(clients[0], BANK, 0, TOLERATED)
    looks(rig)
    assert killed(*clients) == [False, False]
    write(clients[1], BANK, 0, TOLERATED)
    looks(rig)
    assert killed(*clients) == [True, True]


async def test_looks_count_in_a_row(rig: Rig, client: Client) -> None:
    write(client, BANK, 0, TOO_MUCH)
    looks(rig, LOOKS - 1)
    grant(rig, client, TOO_MUCH)
    looks(rig, 1)
    grant(rig, client, 0)
    looks(rig, LOOKS - 1)
    assert killed(client) == [False]


async def test_a_job_that_gets_a_buffer_with_more_in_it_than_it_needs(rig: Rig) -> None:
    """It gives that back in its turn, which may be long to come."""
    large, small = rig.attach(), rig.attach()
    grant(rig, large, 16 * MIB)
    write(large, BANK, 0, 16 * MIB)
    rig.offload(large)
    rig.offload(small)
    rig.device.abandon_bank(2)
    grant(rig, small, MIB)
    assert small.job.bank == 1
    looks(rig)
    assert killed(large, small) == [False, False]


async def test_a_free_buffer_in_which_somebody_writes_is_given_up(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    one, other = rig.attach(), rig.attach()
    rig.offload(one)
    write(one, BANK, 0, TOO_MUCH)
    assert rig.device.used_bytes() == TOO_MUCH
    looks(rig)
    assert killed(one, other) == [False, False] and rig.device.used_bytes() == 0
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "device buffer 1 of host0 holds 4 MiB more than was granted, and no job has it: it is given up"


async def test_workers_that_write_beyond_their_weights_are_ended(rig: Rig, sleeper: int) -> None:
    worker, training = rig.attach(service=100, pid=sleeper), rig.attach()
    words = {"weights": 0xABC, "weights_bytes": MIB, "reload_us": 1, "compute_us": 1, "deadline_us": 1}
    for word, value in (words | {"demand_seq": 1, "want": 1}).items():
        worker.seat.set(word, value)
    rig.do(commands.PlaceWeights("host0", 1000, f"{0xABC:016x}", MIB, worker.job.id))
    (bank,) = {file.bank for file in rig.memory.weights.table.values()}
    os.pwrite(single(rig.device.weights.files(bank)), b"x" * (MIB + TOO_MUCH), 0)
    looks(rig)
    assert killed(worker, training) == [True, False]


async def test_nobody_is_judged_where_pages_cannot_be_counted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(overuse.memfd, "small_pages_only", lambda: False)
    await rig.built.overuse.run()
    assert "not noticed" in caplog.text
