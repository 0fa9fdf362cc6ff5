"""Packets for a process that does not read."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from carpool.daemon.system import in_flight, outbox
from carpool.daemon.system.in_flight import InFlight
from carpool.daemon.system.outbox import MOST_WAITING, Outbox
from tests.daemon.cuda_rig import until
from tests.descriptors import descriptors

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.setblocking(False)
        yield ours, theirs


def unexpected(why: str) -> None:
    raise AssertionError(why)


def number(index: int) -> bytes:
    return f"{index:048}".encode()


def filled(box: Outbox) -> int:
    """How many it took until something had to wait."""
    count = 0
    while box.empty:
        box.send(number(count))
        count += 1
    return count


async def test_what_has_to_wait_comes_in_order_and_with_its_descriptors(ends: Ends) -> None:
    ours, theirs = ends
    emptied = asyncio.Event()
    box = Outbox(ours, InFlight(0), unexpected, emptied.set)
    count = filled(box)
    read_end, write_end = os.pipe()
    box.send(number(count), [read_end])
    os.close(read_end)  # whoever sends it may close it
    box.send(number(count + 1))
    assert not box.empty and not emptied.is_set()
    received, fds = [], []
    while len(received) < count + 2:
        try:
            data, extra, _, _ = theirs.recvmsg(48, socket.CMSG_LEN(4))
        except BlockingIOError:
            await asyncio.sleep(0)
            continue
        received.append(data)
        fds += extra
    assert received == [number(index) for index in range(count + 2)] and len(fds) == 1
    await emptied.wait()
    assert box.empty
    fd = int.from_bytes(fds[0][2], "little")
    os.write(write_end, b"x")
    assert os.read(fd, 1) == b"x"
    for each in (fd, write_end):
        os.close(each)


async def test_what_nobody_is_to_get_any_more_is_not_sent(ends: Ends) -> None:
    ours, theirs = ends
    box = Outbox(ours, InFlight(0), unexpected)
    filled(box)
    before = descriptors()
    box.send(b"more", [theirs.fileno()])
    box.clear()
    assert box.empty and descriptors() == before
    while True:
        try:
            theirs.recv(48)
        except BlockingIOError:
            break
    box.send(b"next")
    assert theirs.recv(48) == b"next"


async def test_the_other_end_is_gone(ends: Ends) -> None:
    ours, theirs = ends
    box = Outbox(ours, InFlight(0), unexpected)
    theirs.close()
    with pytest.raises(BrokenPipeError):
        box.send(b"hello")
    assert box.empty


async def test_it_goes_while_something_waits(ends: Ends) -> None:
    ours, theirs = ends
    box = Outbox(ours, InFlight(0), unexpected)
    filled(box)
    theirs.close()
    await until(lambda: box.empty)


async def test_too_many_descriptors_on_their_way(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "RETRY_S", 0.001)
    ours, theirs = ends

    class Refusing:
        refusals = 3

        def sendmsg(self, *arguments: object) -> int:
            if self.refusals:
                self.refusals -= 1
                raise OSError(errno.ETOOMANYREFS, "too many references")
            return ours.sendmsg(*arguments)  # type: ignore[arg-type]

        def fileno(self) -> int:
            return ours.fileno()

    box = Outbox(Refusing(), InFlight(0), unexpected)  # type: ignore[arg-type]
    box.send(b"hello")
    assert not box.empty
    await until(lambda: box.empty)
    assert theirs.recv(48) == b"hello"


async def test_over_the_most_that_may_wait_nothing_is_sent_any_more(ends: Ends) -> None:
    ours, theirs = ends
    reasons: list[str] = []
    box = Outbox(ours, InFlight(0), reasons.append)
    count = filled(box)
    before = descriptors()
    while not box.closed:
        box.send(number(count), [theirs.fileno()] * (count % 1000 == 0))
        count += 1
    box.send(number(count))
    await until(lambda: reasons)
    assert reasons == [f"a process of it does not read: {MOST_WAITING} packets wait for it"]
    assert box.empty and descriptors() == before


# Descriptors on their way to one user's processes, of which some never receive any


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
