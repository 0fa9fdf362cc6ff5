"""Descriptors on their way to one user's processes, of which some never receive any."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator

import pytest

from carpool.daemon.system import in_flight
from carpool.daemon.system.in_flight import InFlight
from carpool.daemon.system.outbox import Outbox
from tests.daemon.cuda_rig import until
from tests.descriptors import descriptors

MOST = 40
NULL = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


class Peer:
    """A process of the user's, and the daemon's queue for it."""

    def __init__(self, account: InFlight) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.reasons: list[str] = []
        self.box = Outbox(self.ours, account, self.reasons.append)

    def sent(self, packets: int, *, read: bool = False) -> None:
        """Packets with four descriptors each."""
        for _ in range(packets):
            self.box.send(b"x" * 48, [NULL] * 4)
            if read:
                for fd in socket.recv_fds(self.theirs, 48, 4, socket.MSG_DONTWAIT)[1]:
                    os.close(fd)

    def close(self) -> None:
        self.box.close()
        self.ours.close()


@pytest.fixture
async def account(monkeypatch: pytest.MonkeyPatch) -> InFlight:
    monkeypatch.setattr(in_flight, "most_in_flight", lambda: MOST)
    return InFlight(1000)


@pytest.fixture
async def peers(account: InFlight) -> AsyncIterator[tuple[Peer, Peer]]:
    made = Peer(account), Peer(account)
    yield made
    for peer in made:
        peer.close()
        peer.theirs.close()


async def test_who_receives_everything_may_be_sent_as_much_as_there_is(peers: tuple[Peer, Peer]) -> None:
    peers[0].sent(10 * MOST, read=True)
    assert not peers[0].box.closed


async def test_the_connection_with_most_is_closed_for_want_of_room(peers: tuple[Peer, Peer]) -> None:
    """Where the descriptors wait makes no difference: the kernel has all of these."""
    hoarder, other = peers
    hoarder.sent(MOST // 4)
    assert hoarder.box.empty
    other.sent(1)
    await until(lambda: hoarder.reasons)
    assert f"{MOST} descriptors are on their way to processes of uid 1000" in hoarder.reasons[0]
    assert hoarder.box.closed and not other.box.closed


async def test_one_that_waits_for_descriptors_is_counted_with_its_duplicates(account: InFlight) -> None:
    peer = Peer(account)
    while peer.box.empty:
        peer.box.send(b"x" * 48)
    before = descriptors()
    peer.sent(MOST // 4)
    assert len(descriptors()) == len(before) + MOST
    peer.sent(1)
    assert peer.box.closed and descriptors() == before
    peer.close()
    peer.theirs.close()


async def test_what_a_closed_connection_still_has_is_counted(account: InFlight) -> None:
    """A process may hand its end of the channel to another one, so that it outlives its job."""
    before = descriptors()
    hoarder, other, late = Peer(account), Peer(account), Peer(account)
    hoarder.sent(MOST // 4)
    hoarder.close()
    other.sent(1)
    assert other.box.closed
    hoarder.theirs.close()
    late.sent(1, read=True)
    assert not late.box.closed
    for peer in (other, late):
        peer.close()
        peer.theirs.close()
    assert descriptors() == before
