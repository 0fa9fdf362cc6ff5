"""Another daemon takes over jobs on a CUDA device.  On the stub driver, without a core."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator

import pytest
from fakeextents import BANK, LANE

from carpool.core import commands
from carpool.core.events import Adopted
from carpool.core.model import MIB, JobPhase
from carpool.daemon.channels.connections import INHERITED
from carpool.protocol.seat import PacketType
from carpool.protocol.session import Register
from tests.daemon.cuda_rig import Mapped, cuda_rig, grant, limits, packets
from tests.daemon.cuda_rig_fixture import rig
from tests.daemon.rig import Client, Rig

__all__ = ["rig"]


@pytest.fixture
async def other(rig: Rig) -> AsyncIterator[Rig]:
    """The next daemon."""
    made = cuda_rig()
    yield made
    made.close()


def adopt(rig: Rig, other: Rig, client: Client, kept: dict[str, int] | None = None) -> Client | None:
    """``other`` gets what the client's shim keeps, and its channel; None: it does not take it over."""
    assert client.job.seated is not None
    job = other.job(client.job.owner)
    kept = client.kept if kept is None else kept
    other.shims[job.id] = {name: os.dup(fd) for name, fd in kept.items()}
    line = rig.lines.get(client.job.id, INHERITED)
    assert line is not None
    fds = [line.socket, *kept.values()]
    fds = [os.dup(fd if isinstance(fd, int) else fd.fileno()) for fd in fds]
    other.recovery.begin(set())
    if other.channels.open(job, fds, Register(job.id, 1, 1, client.job.seated.pid, list(kept))):
        return None
    assert job.seated is not None
    other.built.found.tell(job)
    other.recovery.end()
    return Client(job, client.channel, job.seated.seat, client.setup, [], other.shims[job.id])


def resident(rig: Rig) -> tuple[Client, Mapped]:
    client = rig.attach()
    client.seat.set("pid", os.getpid())
    mapped = Mapped(rig, client)
    grant(rig, client, 40 * MIB, 36 * MIB)
    mapped.drain()
    mapped.write(BANK, 40 * MIB, 7)
    return client, mapped


async def test_a_job_without_its_turn_is_sent_everything_again(rig: Rig, other: Rig) -> None:
    client, mapped = resident(rig)
    again = adopt(rig, other, client)
    assert again is not None and again.job.phase is JobPhase.RUNNING
    (adopted,) = [event for event in other.events if isinstance(event, Adopted)]
    assert (adopted.granted.persistent, adopted.offloaded, adopted.holds_turn) == (40 * MIB, False, False)
    used = other.device.used_bytes()
    assert used == rig.device.used_bytes() and other.memory.granting.waits(again.job)
    bank = client.seat.get("bank")
    found = packets(again)
    assert sorted(kind for kind, *_ in found) == sorted([PacketType.LANE, PacketType.BANK] + [PacketType.CUT] * 2)
    assert {(a, b, c) for kind, a, b, c, _ in found if kind is PacketType.CUT} == {(1, LANE, 0), (bank, BANK, 0)}
    mapped.close()
    theirs = Mapped(other, again)
    for number, kind in ((1, LANE), (bank, BANK)):
        assert theirs.end(kind) == 0
        other.says(again, PacketType.CUT_DONE, number, kind, 0)
    other.memory.granting.again(again.job)
    theirs.drain()
    assert theirs.end(BANK) + theirs.end(LANE) == used and theirs.read(BANK, 40 * MIB) == {7}
    assert not other.memory.granting.waits(again.job)


async def test_nobody_is_found_in_a_lane_of_another_user(
    rig: Rig, other: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """A daemon without a ledger believes the seat as far as it can."""
    client, _mapped = resident(rig)
    client.seat.set("lane", 2)
    assert adopt(rig, other, client) is None
    assert "its lane 2 is another user's" in caplog.text


async def test_what_is_for_debugging_is_told_anew(rig: Rig) -> None:
    client, mapped = resident(rig)
    other = cuda_rig(close_lanes=True)
    again = adopt(rig, other, client)
    assert again is not None and again.seat.get("close_lane") == 1
    packets(again)
    mapped.close()
    other.close()


async def test_a_job_with_its_turn_keeps_what_it_uses(rig: Rig, other: Rig) -> None:
    client, mapped = resident(rig)
    rig.do(commands.GrantTurn(1, client.job.id))
    again = adopt(rig, other, client)
    assert again is not None
    mapped.drain()
    assert mapped.end(BANK) == 40 * MIB and mapped.end(LANE) == 36 * MIB
    for words in mapped.done:
        other.says(again, PacketType.CUT_DONE, *words)
    other.memory.granting.again(again.job)
    mapped.drain()  # the same extents once more
    assert mapped.end(BANK) == 40 * MIB and mapped.read(BANK, 40 * MIB) == {7} and limits(again)[0] == 40 * MIB
    grant(other, again, 48 * MIB, 36 * MIB)
    mapped.drain()
    assert mapped.end(BANK) == 48 * MIB and limits(again) == (48 * MIB, 36 * MIB)


async def test_a_job_that_was_about_to_come_back_is_in_its_store(rig: Rig, other: Rig) -> None:
    client, _mapped = resident(rig)
    client.seat.set("stored", 40 * MIB)
    client.seat.set("offloaded", 1)
    again = adopt(rig, other, client)
    assert again is not None
    (adopted,) = [event for event in other.events if isinstance(event, Adopted)]
    assert adopted.offloaded and again.job.bank is None and limits(again)[0] == 0


async def test_a_job_that_has_not_read_its_setup_is_told_afterwards(rig: Rig, client: Client, other: Rig) -> None:
    grant(rig, client, 4 * MIB, 0)
    packets(client)
    again = adopt(rig, other, client)
    assert again is not None and packets(again) == [] and other.memory.granting.waits(again.job)
    client.seat.set("pid", os.getpid())
    other.memory.granting.again(again.job)
    assert PacketType.CUT in {kind for kind, *_ in packets(again)}


@pytest.mark.parametrize(
    "missing",
    [
        [f"bank:cuda0:1:0:{32 * MIB}"],
        [f"bank:cuda0:1:{32 * MIB}:{8 * MIB}"],
        [f"lane:1:0:{32 * MIB}", f"lane:1:{32 * MIB}:{4 * MIB}"],
        ["store:cuda0"],
    ],
    ids=["a piece", "the end", "the lane", "the store"],
)
async def test_a_job_of_which_something_is_missing_is_not_taken_over(
    rig: Rig, other: Rig, missing: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    client, _ = resident(rig)
    kept = dict(client.kept)
    for name in missing:
        del kept[name]
    assert adopt(rig, other, client, kept) is None
    assert "cannot be taken over" in caplog.text


async def test_what_a_job_claims_to_make_itself_is_missing_to_nobody_else(rig: Rig, other: Rig) -> None:
    """Its word is believed: it gets no memory for that, and its limit is the ledger's."""
    client, _ = resident(rig)
    kept = dict(client.kept)
    del kept[f"bank:cuda0:1:{32 * MIB}:{8 * MIB}"]
    client.seat.set("handles", 1 << 50)
    again = adopt(rig, other, client, kept)
    assert again is not None and again.job.granted.persistent == 40 * MIB
    assert other.device.used_bytes() == (32 + 36) * MIB
    client.seat.set("made", 1 << 50)
    assert other.memory.supply.made("cuda0") <= 40 * MIB


async def test_a_process_whose_seat_was_taken_back_before_its_shim_heard_of_that_ends_no_job(
    rig: Rig, other: Rig
) -> None:
    """The earlier daemon has noted that the seat is free, and died; the job's other processes go on."""
    client, mapped = resident(rig)
    with subprocess.Popen(["sleep", "600"]) as process:  # noqa: ASYNC220 - it takes no time
        other.seating.ledger.inherited = True
        job = other.job(client.job.owner)
        line = rig.lines.get(client.job.id, INHERITED)
        assert line is not None

        def comes() -> str:
            other.recovery.begin(set())
            fds = [os.dup(fd) for fd in (line.socket.fileno(), *client.kept.values())]
            return other.channels.open(job, fds, Register(job.id, 1, 1, process.pid, list(client.kept)))

        why = comes()
        process.kill()
    assert "not in the format of this version" in why, "it lives, and uses memory that is not the daemon's"
    assert comes() == "" and job.seated is None
    other.recovery.end()
    mapped.close()
