"""Memory that a job makes itself, within its grant: it lies in no device buffer, and the job moves it when asked."""

from __future__ import annotations

import pytest
from fakeextents import BANK

from carpool.core import commands
from carpool.core.events import Offloaded, OffloadFailed
from carpool.core.model import MIB, MemoryClass
from carpool.daemon.memory import grants
from carpool.daemon.seats.record import needed
from carpool.devices.cuda.agent_link import AgentLink
from carpool.devices.cuda.device import CudaDevice
from carpool.protocol.seat import OffloadState, PacketType
from tests.daemon.cuda_rig import Mapped, grant, limits, packets, until
from tests.daemon.cuda_rig_fixture import rig
from tests.daemon.rig import Client, Rig
from tests.devices.cuda_stub import CONTEXT, MEMORY, Stub

__all__ = ["rig"]


def made(client: Client, size: int) -> None:
    """As libcarpool says it, after it has asked for so much."""
    client.seat.set("handles", size)
    client.seat.set("made", size)


async def test_a_device_buffer_is_as_large_as_the_rest_of_the_grant(rig: Rig, client: Client, stub: Stub) -> None:
    client.seat.set("handles", 30 * MIB)
    grant(rig, client, 40 * MIB, 0)
    assert packets(client) == [(PacketType.EXTENT, client.seat.get("bank"), BANK, 0, 10 * MIB)]
    assert limits(client) == (40 * MIB, 0) and stub.used() == 10 * MIB + CONTEXT


async def test_a_grant_that_the_job_is_to_make_waits_for_the_driver(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "RETRY_S", 0.01)
    foreign = CudaDevice("foreign", MEMORY, AgentLink(0))
    foreign.open_lane(1, 200 * MIB)
    client.seat.set("handles", 100 * MIB)
    grant(rig, client, 100 * MIB, 0)
    reason = client.job.grant_waits
    assert limits(client) == (0, 0) and reason is not None and "the driver has not got the memory" in reason.text
    foreign.close()
    await until(lambda: limits(client) == (100 * MIB, 0))


async def test_a_device_buffer_that_is_idle_gives_way(rig: Rig, client: Client, stub: Stub) -> None:
    """What was granted for it before is left to the driver, and the job has let go of it by the time of the answer."""
    mapped = Mapped(rig, client)
    grant(rig, client, 200 * MIB, 0)
    mapped.drain()
    client.seat.set("handles", 150 * MIB)
    client.job.grow_seq = 1
    grant(rig, client, 200 * MIB, 0, MemoryClass.PERSISTENT)
    assert client.seat.get("grow_ack") == 0
    mapped.answer()
    await until(lambda: client.seat.get("grow_ack") == 1)
    assert stub.used() <= 64 * MIB + CONTEXT


async def test_a_job_is_asked_for_what_it_has_made_before_its_buffer_is_copied(rig: Rig, client: Client) -> None:
    mapped = Mapped(rig, client)
    made(client, 6 * MIB)
    grant(rig, client, 8 * MIB, 0)
    mapped.drain()
    mapped.write(BANK, 2 * MIB, 7)
    client.seat.set("p_used", 2 * MIB)
    rig.do(commands.Offload(client.job.id))
    assert client.seat.get("offload") == OffloadState.ASKED and client.seat.get("offloaded") == 0
    client.seat.set("made", 0)
    client.seat.set("offload", OffloadState.DONE)
    rig.says(client, PacketType.OFFLOADED, 0, 0)
    await until(lambda: [event for event in rig.events if isinstance(event, Offloaded)])
    assert (client.seat.get("offloaded"), client.seat.get("stored")) == (1, 2 * MIB)
    assert client.seat.get("offload") == OffloadState.NO and needed(client.seat, MemoryClass.PERSISTENT) == 8 * MIB
    assert rig.seating.ledger.of(client.job.id).moved_out == 8 * MIB, (
        "the next daemon counts what lies in no store, too"
    )


async def test_a_job_that_cannot_move_what_it_has_made_stays(rig: Rig, client: Client) -> None:
    made(client, 6 * MIB)
    grant(rig, client, 6 * MIB, 0)
    rig.do(commands.Offload(client.job.id))
    events = rig.says(client, PacketType.OFFLOADED, 16, 0)
    assert [type(event) for event in events] == [OffloadFailed]
    assert limits(client) == (6 * MIB, 0) and client.seat.get("offload") == OffloadState.NO


async def test_what_jobs_have_made_counts_within_their_grants(rig: Rig, client: Client) -> None:
    made(client, 60 * MIB)
    grant(rig, client, 40 * MIB, 0)
    assert (rig.memory.supply.made("cuda0"), rig.memory.supply.made("cuda1")) == (40 * MIB, 0)


async def test_what_a_job_claims_to_have_made_hides_no_other_memory(rig: Rig, client: Client) -> None:
    """What lies in its device buffer, it has not made."""
    client.seat.set("handles", 10 * MIB)
    grant(rig, client, 40 * MIB, 0)
    made(client, 40 * MIB)
    assert rig.memory.supply.made("cuda0") == 10 * MIB
