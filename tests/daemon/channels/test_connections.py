"""A job's processes come to its seat one after another."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest

from carpool.core import commands
from carpool.core.events import Attached, Detached, TurnWanted
from carpool.daemon.channels import connections
from carpool.daemon.system import outbox
from carpool.protocol.seat import PROTOCOL, Leave, Packet, PacketType
from tests.daemon.rig import Client, OtherProcess, Rig


def hello(pid: int) -> bytes:
    return Packet(PacketType.HELLO, pid, PROTOCOL).encode()


@pytest.fixture
async def other(rig: Rig, first: subprocess.Popen[bytes]) -> AsyncIterator[OtherProcess]:
    made = OtherProcess(rig, rig.attach(pid=first.pid))
    yield made
    made.close()


async def test_one_that_ends_while_it_is_answered(
    rig: Rig, other: OtherProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not read the answer: its end is a reset of the connection."""
    hello = rig.channels.attaching.hello

    def answered(*about: Any) -> None:
        hello(*about)
        other.channel.close()

    monkeypatch.setattr(rig.channels.attaching, "hello", answered)
    other.asks()
    assert rig.lines.get(other.client.job.id, "channel:1") is None


def leaves(other: OtherProcess, answer: Leave) -> None:
    """The attached process answers."""
    other.client.seat.set("leave", answer)
    other.rig.says(other.client, PacketType.LEFT, int(answer is Leave.STAYS))
    other.rig.hears(other.client.job)


async def test_who_only_asks_is_refused_for_the_time_being(other: OtherProcess) -> None:
    other.asks()
    assert other.answer() is PacketType.REFUSED
    assert other.client.seat.get("leave") == Leave.NO


async def test_who_is_about_to_use_the_device_gets_the_seat_of_who_does_not(other: OtherProcess) -> None:
    other.asks(uses=True)
    assert other.answer() is None and other.client.seat.get("leave") == Leave.ASKED
    leaves(other, Leave.LEFT)
    assert other.answer() is PacketType.SETUP
    job = other.client.job
    assert job.seated is not None and job.seated.pid == os.getpid()
    assert [type(event) for event in other.rig.events if isinstance(event, Attached | Detached)] == [Detached, Attached]
    assert other.says(PacketType.WANT) == [TurnWanted(job.id)]


async def test_who_has_come_to_use_the_device_meanwhile_stays(other: OtherProcess) -> None:
    other.asks(uses=True)
    leaves(other, Leave.STAYS)
    assert other.answer() is PacketType.REFUSED
    other.asks(uses=True)
    assert other.answer() is PacketType.REFUSED


@pytest.mark.parametrize("sign", ["turn", "want", "p_peak", "e_peak", "grow_seq"])
async def test_a_seat_in_use_is_not_asked_for(other: OtherProcess, sign: str) -> None:
    other.client.seat.set(sign, 1)
    other.asks(uses=True)
    assert other.answer() is PacketType.REFUSED and other.client.seat.get("leave") == Leave.NO


async def test_who_ends_while_it_is_asked_leaves_too(other: OtherProcess, first: subprocess.Popen[bytes]) -> None:
    other.asks(uses=True)
    first.kill()
    first.wait()
    other.rig.channels.process_ended(other.client.job.id)
    other.rig.hears(other.client.job)
    assert other.answer() is PacketType.SETUP


async def test_who_has_left_asks_again_over_its_own_channel(other: OtherProcess) -> None:
    """Its answer and its next request may come in either order."""
    other.asks(uses=True)
    other.client.seat.set("leave", Leave.LEFT)
    other.client.channel.send(hello(other.client.job.seated.pid))  # type: ignore[union-attr]
    other.rig.hears(other.client.job)
    packet, _fds = other.client.receive()
    assert packet.type is PacketType.SETUP


async def test_another_program_of_the_same_process_gets_the_seat_anew(rig: Rig, client: Client) -> None:
    """After exec the old one's memory is gone, and so is its channel."""
    client.seat.set("pid", os.getpid())
    client.seat.set("p_peak", 1)
    other = OtherProcess(rig, client)
    other.asks()
    assert other.answer() is PacketType.SETUP
    assert client.job.seated is not None and client.job.seated.seat.get("p_peak") == 0
    other.channel.close()


async def test_whether_a_hello_is_repeated_is_for_the_daemon_to_know(rig: Rig, client: Client) -> None:
    """A job writes its own seat: without its number there it would be sent its descriptors as often as it asks."""
    for _ in range(3):
        client.seat.set("pid", 0)
        rig.says(client, PacketType.HELLO, PROTOCOL)
    assert client.silent()


async def test_an_answer_of_an_earlier_daemon_is_repeated_once(rig: Rig, client: Client) -> None:
    rig.seated_earlier(client)
    rig.says(client, PacketType.HELLO, PROTOCOL)
    packet, _fds = client.receive()
    assert packet.type is PacketType.SETUP
    rig.says(client, PacketType.HELLO, PROTOCOL)
    assert client.silent()


async def test_a_job_of_which_a_process_reads_no_answer_is_ended(
    rig: Rig, other: OtherProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals bring no descriptors, and would wait for ever."""
    monkeypatch.setattr(outbox, "MOST_WAITING", 8)
    job = other.client.job
    while rig.lines.get(job.id, "channel:1") is not None:
        other.asks()
        await asyncio.sleep(0)
    assert job.fault is not None and job.fault.code == "unread"
    assert "a process of it does not read: 8 packets wait for it" in job.fault.text


async def test_the_channel_of_a_process_that_has_ended_is_kept_no_longer(other: OtherProcess) -> None:
    other.asks()
    other.channel.close()
    other.rig.hears(other.client.job)
    assert other.rig.lines.get(other.client.job.id, "channel:1") is None


async def test_another_process_is_refused_while_the_first_one_lives(rig: Rig, first: subprocess.Popen[bytes]) -> None:
    client = rig.attach(pid=first.pid)
    rig.says(client, PacketType.HELLO, PROTOCOL)
    assert client.receive()[0].type is PacketType.REFUSED
    assert client.job.seated is not None and client.job.seated.pid == first.pid
    assert client.job.refused_pid is None, "it has not come to use the device"
    rig.says(client, PacketType.HELLO, PROTOCOL, 1)
    assert client.receive()[0].type is PacketType.REFUSED
    assert client.job.refused_pid == os.getpid()


async def test_a_successor_that_is_heard_while_the_first_is_seen_off_keeps_the_seat(
    rig: Rig, first: subprocess.Popen[bytes]
) -> None:
    """The pidfd tells first: the HELLO is among the packets that are read before the seat is given up."""
    client = rig.attach(pid=first.pid)
    first.kill()
    first.wait()
    client.channel.send(hello(os.getpid()))
    rig.channels.process_ended(client.job.id)
    assert client.job.seated is not None and client.job.seated.pid == os.getpid()
    assert [type(event) for event in rig.events if isinstance(event, Attached | Detached)] == [Detached, Attached]
    packet, _fds = client.receive()
    assert packet.type is PacketType.SETUP
    assert rig.says(client, PacketType.WANT) == [TurnWanted(client.job.id)]


@pytest.mark.parametrize("name", ["", "channel:1", "board:host0:1", "more"])
async def test_what_is_no_channel_of_its_own_is_closed(
    other: OtherProcess, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is known or none of a channel's, or one channel too many."""
    if name == "more":
        name = "channel:2"
        monkeypatch.setattr(connections, "MOST_CHANNELS", 1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.rig.channels.bring(other.client.job, name, ours.detach())
    assert theirs.recv(1) == b""
    theirs.close()
    other.asks()
    assert other.answer() is PacketType.REFUSED, "the first one is still heard"


@pytest.mark.parametrize("kind", ["file", "stream"])
async def test_something_else_than_a_channel_is_closed(other: OtherProcess, kind: str) -> None:
    fd = os.memfd_create("file") if kind == "file" else socket.socket().detach()
    other.rig.channels.bring(other.client.job, "channel:2", fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


async def test_all_processes_of_a_users_jobs_together_have_a_bound_of_channels(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "most_through_doors", lambda: 3)
    first, second, another = rig.attach(), rig.attach(), rig.attach(1001)
    others = [OtherProcess(rig, client, f"channel:{number}") for client in (first, second) for number in (1, 2)]
    assert others[3].channel.recv(1) == b"", "of two jobs with two each the last one is too much"
    assert "one channel more than the 3 that processes of uid 1000 may have" in caplog.text
    strangers = [OtherProcess(rig, another, f"channel:{number}") for number in (1, 2)]
    for other in (*others[:3], *strangers):
        other.asks()
        assert other.answer() is not None, "it is heard"
    rig.lines.close(rig.lines.all(first.job.id)[-1])
    again = OtherProcess(rig, second, "channel:3")
    again.asks()
    assert again.answer() is not None, "there is room again"


async def test_a_job_that_is_over_loses_everything_in_one_place(rig: Rig) -> None:
    """It has handed its turn over, and has died before the other one had it: then its job ends, or begins anew."""
    passes, successor = rig.attach(), rig.attach()
    rig.do(commands.GrantTurn(1, passes.job.id))
    successor.seat.set("want", 1)
    passes.seat.set("turn", 0)
    passes.passes(successor)
    rig.turns.sync(1)
    rig.channels.release(passes.job)
    assert (
        successor.seat.get("turn") == 1 and rig.seating.holder == {1: successor.job.id} and not rig.seating.predecessor
    )
    assert passes.job.seated is None and passes.job.bank is None and not passes.kept
    assert rig.lines.all(passes.job.id) == () and passes.channel.recv(1) == b""
    rig.channels.release(passes.job)  # again: nothing is left to take


async def test_a_job_that_ends_with_the_turn_leaves_the_lane_free(rig: Rig, client: Client) -> None:
    rig.do(commands.GrantTurn(1, client.job.id))
    rig.channels.release(client.job)
    assert client.job.seated is None and 1 not in rig.seating.holder


@pytest.mark.parametrize("bank", range(4))
async def test_a_seat_that_names_another_owners_bank_is_not_given_that_bank(rig: Rig, bank: int) -> None:
    """A job may write any number into its seat, and ask again as if no answer had ever come, after a restart."""
    client, victim = rig.attach(1000), rig.attach(1001)
    rig.seated_earlier(client)
    foreign = {os.fstat(fd).st_ino for fd in victim.fds}
    client.seat.set("bank", bank)
    client.seat.set("pid", 0)
    rig.says(client, PacketType.HELLO, PROTOCOL)
    packet, fds = client.receive()
    assert (packet.type, packet.e) == (PacketType.SETUP, client.job.bank)
    assert not foreign & {os.fstat(fd).st_ino for fd in fds}


async def test_who_seems_to_have_no_bank_is_not_answered_again(rig: Rig, client: Client) -> None:
    """A process that has not been answered has nothing in a store; its seat says otherwise here."""
    rig.seated_earlier(client)
    rig.offload(client)
    client.seat.set("pid", 0)
    rig.says(client, PacketType.HELLO, PROTOCOL)
    assert client.receive()[0].type is PacketType.REFUSED
