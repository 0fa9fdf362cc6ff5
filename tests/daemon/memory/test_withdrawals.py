"""Requests for memory that nobody waits for any more, and answers that cross the withdrawal."""

from __future__ import annotations

import pytest

from carpool.core import commands
from carpool.core.events import MemoryRequested, MemoryReturned, RequestWithdrawn
from carpool.core.model import MIB, Memory, MemoryClass, Reason
from carpool.daemon.memory import grants
from carpool.daemon.seats.record import needed
from carpool.protocol.seat import Grow, PacketType
from tests.daemon.cuda_rig import until
from tests.daemon.failing import without_banks
from tests.daemon.rig import Client, Rig

P, E = MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL


def answer(client: Client) -> tuple[int, int]:
    return client.seat.get("grow_ack"), client.seat.get("grow_status")


async def test_the_core_hears_of_it_and_refuses(rig: Rig, client: Client) -> None:
    assert rig.says(client, PacketType.GROW, 1, 5 * MIB, 1) == [MemoryRequested(client.job.id, E, 5 * MIB, alive=0)]
    assert rig.says(client, PacketType.WITHDRAWN, 1, 0, 1) == [RequestWithdrawn(client.job.id, E)]
    rig.do(commands.DenyMemory(client.job.id, E, Reason("withdrawn", "")))
    assert answer(client) == (1, Grow.DENIED)


async def test_it_crosses_the_answer(rig: Rig, client: Client) -> None:
    rig.says(client, PacketType.GROW, 0, 1, 1)
    rig.do(commands.GrantMemory(client.job.id, Memory(MIB, 0), P))
    assert answer(client) == (1, Grow.GRANTED)
    assert rig.says(client, PacketType.WITHDRAWN, 0, 0, 1) == []


async def test_what_was_said_before_a_restart_is_known_already(rig: Rig, client: Client) -> None:
    """An earlier daemon has not read the packets; this one has found a later request in the seat, and answers that."""
    client.job.grow_seq = 2
    for answered in (0, 2):
        client.seat.set("grow_ack", answered)
        assert rig.says(client, PacketType.WITHDRAWN, 0, 0, 1) == []
        assert rig.says(client, PacketType.GROW, 0, MIB, 1) == []
        assert client.job.grow_seq == 2
    client.job.grow_seq = 1
    assert rig.says(client, PacketType.WITHDRAWN, 0, 0, 1) == []
    client.job.grow_seq = 2
    assert rig.says(client, PacketType.GROW, 1, MIB, 3) == [MemoryRequested(client.job.id, E, MIB, alive=0)]


async def test_a_late_grant_answers_its_own_request(rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been granted is not there yet when the job asks for something else instead.

    A job of an older library does not say that it has withdrawn the first request.
    """
    monkeypatch.setattr(grants, "RETRY_S", 0.01)
    rig.offload(client)
    rig.do(commands.GrantMemory(client.job.id, Memory()))
    rig.says(client, PacketType.GROW, 0, MIB, 1)
    with without_banks(rig.device):
        rig.do(commands.GrantMemory(client.job.id, Memory(MIB, 0), P))
        rig.says(client, PacketType.GROW, 0, 2 * MIB, 2)
    await until(lambda: not rig.memory.granting.waits(client.job))
    assert answer(client) == (1, Grow.GRANTED) and client.seat.get("p_limit") == MIB
    rig.do(commands.DenyMemory(client.job.id, P, Reason("too_large", "")))
    assert answer(client) == (2, Grow.DENIED)


async def test_what_is_granted_and_not_there_yet_is_refused_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core has what is not needed any more; what the job had before comes all the same."""
    monkeypatch.setattr(grants, "RETRY_S", 0.01)
    client = rig.attach()
    rig.offload(client)
    rig.do(commands.GrantMemory(client.job.id, Memory()))
    rig.says(client, PacketType.GROW, 0, 3 * MIB, 1)
    with without_banks(rig.device):
        rig.do(commands.GrantMemory(client.job.id, Memory(3 * MIB, 0), P))
        assert answer(client) == (0, 0)
        assert rig.says(client, PacketType.WITHDRAWN, 0, 0, 1) == [MemoryReturned(client.job.id, P, MIB)]
        assert answer(client) == (1, Grow.DENIED) and client.seat.get("p_limit") == 0
        assert rig.says(client, PacketType.WITHDRAWN, 0, 0, 1) == []
        rig.do(commands.GrantMemory(client.job.id, Memory(MIB, 0)))
    await until(lambda: not rig.memory.granting.waits(client.job))
    assert answer(client) == (1, Grow.DENIED) and client.seat.get("p_limit") == MIB


@pytest.mark.parametrize(("words", "kept"), [({"e_limit": 1}, 1), ({"e_peak": 3}, 3), ({"e_limit": 4, "e_peak": 3}, 4)])
async def test_what_it_has_used_is_not_taken(rig: Rig, client: Client, words: dict[str, int], kept: int) -> None:
    """Its limit may have been lowered for others until its next turn."""
    for word, mib in words.items():
        client.seat.set(word, mib * MIB)
    assert needed(client.seat, E) == kept * MIB


async def test_the_next_process_counts_its_requests_anew(rig: Rig, client: Client) -> None:
    client.job.grow_seq = 7
    rig.seating.unseat(client.job)
    assert client.job.grow_seq == 0
