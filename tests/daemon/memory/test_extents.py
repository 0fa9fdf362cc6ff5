"""How a job on a CUDA device gets its memory: extents, cuts, grants that wait.  On the stub driver, without jobs."""

from __future__ import annotations

import asyncio
import signal
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakeextents import BANK, LANE

from carpool.core import commands
from carpool.core.model import MIB, MemoryClass
from carpool.daemon.channels.connections import INHERITED
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.memory import grants
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.daemon.sigstop import watchdog
from carpool.daemon.sigstop.stopped import StopMarkers
from carpool.devices.cuda.agent_link import AgentLink
from carpool.devices.cuda.device import CudaDevice
from carpool.protocol.paths import Home
from carpool.protocol.seat import KIND_OFFSET, Grow, Kind, Packet, PacketType
from tests.daemon.cuda_rig import Mapped, cuda_rig, grant, limits, packets, until
from tests.daemon.cuda_rig_fixture import rig
from tests.daemon.rig import Client, Rig
from tests.devices.cuda_stub import CONTEXT, MEMORY, Stub

__all__ = ["rig"]

PATIENCE_S = 20.0


async def test_a_job_is_set_up_with_a_board_alone(rig: Rig, client: Client) -> None:
    assert len(client.fds) == 1 and client.setup.type is PacketType.SETUP
    (kind,) = struct.unpack_from("=I", client.job.seated.board.view, KIND_OFFSET)  # type: ignore[union-attr]
    assert kind == Kind.CUDA and client.seat.get("whole") == 0
    assert set(client.kept) == {f"board:cuda0:{client.seat.slot}", "store:cuda0"}
    assert (client.setup.c, client.setup.e) == (client.seat.get("lane"), client.seat.get("bank")) == (1, 1)
    assert packets(client) == []


async def test_what_a_job_needs_is_sent_before_its_limits_are_raised(rig: Rig, client: Client) -> None:
    grant(rig, client, 40 * MIB, 4 * MIB)
    bank = client.seat.get("bank")
    assert packets(client) == [
        (PacketType.EXTENT, 1, LANE, 0, 4 * MIB),
        (PacketType.EXTENT, bank, BANK, 0, 32 * MIB),
        (PacketType.EXTENT, bank, BANK, 32 * MIB, 8 * MIB),
    ]
    assert limits(client) == (40 * MIB, 4 * MIB)
    names = {f"bank:cuda0:{bank}:0:{32 * MIB}", f"bank:cuda0:{bank}:{32 * MIB}:{8 * MIB}", f"lane:1:0:{4 * MIB}"}
    assert names < set(client.kept)
    grant(rig, client, 40 * MIB, 6 * MIB)
    assert packets(client) == [(PacketType.EXTENT, 1, LANE, 4 * MIB, 2 * MIB)]


async def test_the_memory_of_a_grant_is_made_for_it_and_no_sooner(rig: Rig, client: Client, stub: Stub) -> None:
    rig.do(commands.ResizeLane(1, 100 * MIB))
    assert stub.used() == 0
    grant(rig, client, 0, 10 * MIB)
    assert stub.used() == 10 * MIB + CONTEXT


async def test_jobs_of_a_lane_share_it_and_let_go_together(rig: Rig, stub: Stub) -> None:
    first, second = rig.attach(), rig.attach()
    mapped = [Mapped(rig, client) for client in (first, second)]
    for client in (first, second):
        grant(rig, client, 0, 70 * MIB)
    for one in mapped:
        one.drain()
    mapped[0].write(LANE, 70 * MIB, 7)
    assert mapped[1].read(LANE, 70 * MIB) == {7}
    for client in (first, second):
        grant(rig, client, 0, 33 * MIB)
    rig.do(commands.ResizeLane(1, 33 * MIB))
    assert rig.device.lane_size(1) == 64 * MIB
    for one in mapped:
        assert stub.used() == 70 * MIB + CONTEXT
        one.answer()
        assert one.end(LANE) == 64 * MIB
    assert stub.used() == 64 * MIB + CONTEXT and first.job.cuts == second.job.cuts == {}
    assert all(f"lane:1:{64 * MIB}:{6 * MIB}" not in client.kept for client in (first, second))
    assert mapped[0].read(LANE, 64 * MIB) == {7}


async def test_a_grant_waits_until_others_have_let_go(rig: Rig) -> None:
    first, second = rig.attach(), rig.attach(owner=1001)
    mapped = Mapped(rig, first)
    grant(rig, first, 0, 192 * MIB)
    mapped.drain()
    grant(rig, first, 0, 0)
    rig.do(commands.ResizeLane(1, 0))
    second.job.grow_seq = 5
    grant(rig, second, 0, 100 * MIB, MemoryClass.EPHEMERAL)
    rig.do(commands.GrantTurn(2, second.job.id))
    assert limits(second) == (0, 0) and second.seat.get("turn") == second.seat.get("grow_ack") == 0
    reason = second.job.grant_waits
    assert reason is not None and "OUT_OF_MEMORY" in reason.text
    mapped.answer()
    await asyncio.sleep(0)
    assert limits(second) == (0, 100 * MIB) and second.seat.get("turn") == 1
    assert (second.seat.get("grow_ack"), second.seat.get("grow_status")) == (5, Grow.GRANTED)
    assert second.job.grant_waits is None


async def test_a_grant_waits_until_a_process_is_gone(rig: Rig) -> None:
    first, second = rig.attach(), rig.attach(owner=1001)
    mapped = Mapped(rig, first)
    grant(rig, first, 192 * MIB, 0)
    mapped.drain()
    grant(rig, second, 100 * MIB, 0)
    assert limits(second) == (0, 0)
    mapped.close()
    rig.channels.attaching.detach(first.job)
    await asyncio.sleep(0)
    assert limits(second) == (100 * MIB, 0)


async def test_a_grant_is_tried_again_by_and_by(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(grants, "RETRY_S", 0.01)
    foreign = CudaDevice("foreign", MEMORY, AgentLink(0))
    foreign.open_lane(1, 200 * MIB)
    client = rig.attach()
    grant(rig, client, 100 * MIB, 0)
    await asyncio.sleep(0.1)
    assert limits(client) == (0, 0) and caplog.text.count("waits for granted memory") == 1
    foreign.close()
    await until(lambda: limits(client) == (100 * MIB, 0))


async def test_who_waits_for_a_grant_is_named_as_soon_as_it_has_it(rig: Rig) -> None:
    holder, other = rig.attach(), rig.attach()
    mapped = Mapped(rig, other)
    for client in (holder, other):
        grant(rig, client, 2 * MIB, 64 * MIB)
    mapped.drain()
    rig.do(commands.GrantTurn(1, holder.job.id))
    for client, size in ((holder, 2), (other, 2)):
        grant(rig, client, 2 * MIB, size * MIB)
    rig.do(commands.ResizeLane(1, 2 * MIB))  # nobody lets go yet
    grant(rig, other, 2 * MIB, 40 * MIB)
    rig.do(commands.NameSuccessor(1, holder.job.id, other.job.id))
    assert limits(other) == (2 * MIB, 2 * MIB) and holder.seat.get("successor") == 0
    assert "has not released" in other.job.grant_waits.text  # type: ignore[union-attr]
    mapped.answer()
    await asyncio.sleep(0)
    assert limits(other) == (2 * MIB, 40 * MIB)
    assert holder.seat.get("successor") == other.seat.slot + 1
    grant(rig, other, 2 * MIB, 2000 * MIB)
    assert holder.seat.get("successor") == 0
    grant(rig, other, 2 * MIB, 40 * MIB)
    assert holder.seat.get("successor") == other.seat.slot + 1
    mapped.answer()
    assert mapped.end(LANE) == rig.device.lane_size(1) >= 40 * MIB


async def test_what_a_job_loses_it_loses_at_once(rig: Rig, client: Client) -> None:
    grant(rig, client, 40 * MIB, 40 * MIB)
    grant(rig, client, 8 * MIB, 2000 * MIB)
    assert limits(client) == (8 * MIB, 40 * MIB) and client.job.grant_waits is not None


async def test_a_job_that_does_not_read_loses_nothing_and_is_not_granted_more(rig: Rig, client: Client) -> None:
    sent = 0
    line = rig.lines.get(client.job.id, INHERITED)
    assert line is not None
    while line.outbox.empty:
        rig.lines.send(client.job.id, Packet(PacketType.LANE, a=1), [])
        sent += 1
    grant(rig, client, 4 * MIB, 0)
    assert limits(client) == (0, 0) and "does not read" in client.job.grant_waits.text  # type: ignore[union-attr]
    bell, found = client.seat.get("bell"), []
    while not line.outbox.empty or not client.silent():
        found += packets(client)
        await asyncio.sleep(0)
    assert [kind for kind, *_ in found] == [PacketType.LANE] * sent + [PacketType.EXTENT]
    assert limits(client) == (4 * MIB, 0) and client.seat.get("bell") != bell


class Signals:
    """What a watchdog sends to jobs."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []

    def signal(self, job: JobRecord, number: int) -> None:
        self.sent.append((job.id, number))

    def kill_process(self, pid: int, owner: int) -> None:
        """The attached process is this one."""


@pytest.fixture
async def signals(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Signals]:
    """A watchdog looks after the jobs, and is impatient."""
    for name, seconds in (("FIRST_LOOK_S", 0.01), ("LOOK_S", 0.01), ("LEASE_S", 0.1)):
        monkeypatch.setattr(watchdog, name, seconds)
    sent, privileges = Signals(), DirectPrivileges(Home(tmp_path))
    markers = StopMarkers(tmp_path, privileges)
    dog = watchdog.Watchdog(
        *(rig.jobs, markers, rig.watchlist, rig.turns, rig.memory.offloads, sent, privileges)  # type: ignore[arg-type]
    )
    running = asyncio.create_task(dog.run())
    yield sent
    running.cancel()
    await dog.close()


async def test_a_job_that_never_lets_go_of_what_was_cut_is_killed(rig: Rig, signals: Signals) -> None:
    """Its turn is not asked for, and without a turn it owes its answer, too: others get the memory."""
    silent, other = rig.attach(), rig.attach(owner=1001)
    mapped = Mapped(rig, silent)
    grant(rig, silent, 0, 192 * MIB)
    mapped.drain()
    grant(rig, silent, 0, 0)
    rig.do(commands.ResizeLane(1, 0))
    grant(rig, other, 0, 100 * MIB)
    async with asyncio.timeout(PATIENCE_S):
        while not signals.sent:
            rig.do(commands.ResizeLane(1, 0))  # asking again gives it no more time
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert signals.sent == [(silent.job.id, signal.SIGKILL)], "once"
    assert silent.job.fault is not None and silent.job.fault.code == "lease"
    assert "it did not release memory that was taken back within" in silent.job.fault.text
    assert limits(other) == (0, 0)
    mapped.close()
    rig.channels.attaching.detach(silent.job)  # its process has ended
    await asyncio.sleep(0)
    assert limits(other) == (0, 100 * MIB)


async def test_a_job_that_answers_each_cut_in_time_lives(rig: Rig, client: Client, signals: Signals) -> None:
    mapped = Mapped(rig, client)
    for _ in range(6):
        grant(rig, client, 0, 192 * MIB)
        mapped.drain()
        grant(rig, client, 0, 0)
        rig.do(commands.ResizeLane(1, 0))
        assert client.job.cuts and rig.memory.supply.returning("cuda0") and not rig.memory.supply.returning("cuda1")
        await asyncio.sleep(0.05)
        mapped.answer()
        assert not client.job.cuts and not rig.memory.supply.returning("cuda0")
    assert signals.sent == [] and client.job.fault is None


async def test_a_bank_that_is_larger_than_granted_is_cut(rig: Rig, client: Client) -> None:
    mapped = Mapped(rig, client)
    grant(rig, client, 100 * MIB, 0)
    mapped.drain()
    client.seat.set("p_used", 30 * MIB)
    grant(rig, client, 40 * MIB, 0)
    mapped.answer()
    assert mapped.end(BANK) == rig.device.used_bytes() == 64 * MIB
    grant(rig, client, 10 * MIB, 0)  # more is used, it says
    mapped.answer()
    assert mapped.end(BANK) == 32 * MIB


async def test_a_job_alone_on_its_device_has_no_memory_of_ours(rig: Rig) -> None:
    client = rig.attach(exclusive=True)
    assert client.seat.get("whole") == 1 and client.job.bank is None
    grant(rig, client, 100 * MIB, 100 * MIB)
    rig.do(commands.GrantTurn(1, client.job.id))
    assert packets(client) == [] and rig.device.used_bytes() == 0
    assert limits(client) == (100 * MIB, 100 * MIB) and client.seat.get("turn") == 1


@pytest.mark.parametrize("close", [False, True])
async def test_a_job_is_told_whether_to_close_its_memory_between_turns(stub: Stub, close: bool) -> None:
    rig = cuda_rig(close_lanes=close)
    assert rig.attach().seat.get("close_lane") == close
    rig.close()


async def test_a_job_that_is_moved_gets_the_other_lane(rig: Rig, client: Client) -> None:
    mapped = Mapped(rig, client)
    grant(rig, client, 0, 4 * MIB)
    rig.do(commands.OpenLane(7, "cuda0", 1000, 4 * MIB))
    rig.do(commands.MoveJob(client.job.id, 7))
    rig.do(commands.CloseLane(1))
    mapped.answer()
    assert client.seat.get("lane") == 7 and mapped.end(LANE) == rig.device.lane_size(7) == 4 * MIB
    assert not any(name.startswith("lane:1:") for name in client.kept)
