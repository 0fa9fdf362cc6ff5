"""A job's processes come to its seat one after another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from rig import Rig

from carpool.core.events import Attached, Detached, TurnWanted
from carpool.protocol.seat import PROTOCOL, Packet, PacketType


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    made.close()


@pytest.fixture
def first() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def hello(pid: int) -> bytes:
    return Packet(PacketType.HELLO, pid, PROTOCOL).encode()


async def test_another_process_is_refused_while_the_first_one_lives(rig: Rig, first: subprocess.Popen[bytes]) -> None:
    client = rig.attach(pid=first.pid)
    client.channel.send(hello(os.getpid()))
    rig.channels._readable(client.job.id)
    assert client.receive()[0].type is PacketType.REFUSED
    assert client.job.seated is not None and client.job.seated.pid == first.pid


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
    packet, fds = client.receive()
    client.fds += fds
    assert packet.type is PacketType.SETUP
    assert rig.says(client, PacketType.WANT) == [TurnWanted(client.job.id)]
