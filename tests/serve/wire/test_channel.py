"""Frames through real sockets: in pieces, with descriptors, and from peers that die in the middle or send nonsense."""

from __future__ import annotations

import array
import asyncio
import os
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.serve.oip.values import Tensor
from carpool.serve.wire.channel import AsyncChannel, Gone, MessageChannel, peer
from carpool.serve.wire.messages import (
    PREFIX,
    Broken,
    Frame,
    FromWorker,
    Infer,
    Load,
    Loaded,
    ToWorker,
    Unload,
    encode,
    heads,
)
from tests.descriptors import descriptors
from tests.serve.wire.test_messages import ENTRY

Pair = tuple[socket.socket, socket.socket]
LARGE = 3_000_000  # more than a socket holds


@pytest.fixture
def pair() -> Iterator[Pair]:
    front, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with front, worker:
        yield front, worker


@contextmanager
def given_away() -> Iterator[int]:
    """A descriptor to send; in the end nobody has it."""
    read, write = os.pipe()
    try:
        yield write
    finally:
        os.close(write)
    assert os.read(read, 1) == b""
    os.close(read)


def infer(*sizes: int) -> tuple[Infer, list[list[Tensor]]]:
    requests = [[Tensor("x", "UINT8", (size,), random.Random(size).randbytes(size)) for size in sizes]]
    return Infer(1, "m", heads(requests), None), requests


def test_frames_of_every_size_arrive_in_order(pair: Pair) -> None:
    sent = [infer(0), infer(LARGE, 0, 5), infer(*[1] * 2000)]
    sender = threading.Thread(target=lambda: [MessageChannel(pair[0], FromWorker).send(*one) for one in sent])
    sender.start()
    worker = MessageChannel(pair[1], ToWorker)
    assert [worker.receive() for _ in sent] == [Frame(*one, None) for one in sent]
    sender.join()


async def test_the_front_neither_waits_nor_loses_anything(pair: Pair) -> None:
    front, worker = AsyncChannel(pair[0], FromWorker), MessageChannel(pair[1], ToWorker)
    sent = [infer(LARGE), infer(5), infer(LARGE)]
    for one in sent:
        front.send(*one)  # returns, though nobody reads
    for one in sent:
        assert await asyncio.to_thread(worker.receive) == Frame(*one, None)
    listening = asyncio.create_task(front.receive())
    await asyncio.to_thread(worker.send, Loaded(3))
    assert await listening == Frame(Loaded(3), [], None)
    front.close()
    assert await front.receive() is None
    assert worker.receive() is None


async def test_close_wakes_who_listens(pair: Pair) -> None:
    front = AsyncChannel(pair[0], FromWorker)
    listening = asyncio.create_task(front.receive())
    asyncio.get_running_loop().call_soon(front.close)
    assert await listening is None
    front.send(Unload("x"))  # no error


async def test_close_in_the_middle_of_a_frame(pair: Pair) -> None:
    """Its descriptor has come already."""
    front = AsyncChannel(pair[0], FromWorker)
    with given_away() as fd:
        socket.send_fds(pair[1], [b"\0"], [fd])
        listening = asyncio.create_task(front.receive())
        await asyncio.sleep(0)
        front.close()
        assert await listening is None


async def test_a_descriptor_comes_along_and_is_not_the_senders(pair: Pair) -> None:
    before = descriptors()
    read, write = os.pipe()
    front, worker = AsyncChannel(pair[0], FromWorker), MessageChannel(pair[1], ToWorker)
    front.send(*infer(LARGE))
    front.send(Load(1, "m", ENTRY, 8), fd=write)
    os.close(write)  # before it has been sent
    await asyncio.to_thread(worker.receive)
    frame = await asyncio.to_thread(worker.receive)
    assert frame is not None
    assert frame.fd is not None
    assert not os.get_inheritable(frame.fd)
    os.write(frame.fd, b"x")
    os.close(frame.fd)
    assert os.read(read, 2) == b"x"
    assert os.read(read, 2) == b""  # nobody else has it
    os.close(read)
    assert descriptors() == before


async def test_what_was_not_sent_is_not_kept(pair: Pair) -> None:
    front = AsyncChannel(pair[0], FromWorker)
    front.send(*infer(LARGE))
    with given_away() as fd:
        front.send(Load(1, "m", ENTRY, 8), fd=fd)
        front.close()


def test_a_peer_that_dies_in_the_middle(pair: Pair) -> None:
    data = b"".join(encode(*infer(100)))
    for end in (1, PREFIX.size, PREFIX.size + 1, len(data) - 1):
        ours, theirs = socket.socketpair()
        with ours:
            theirs.sendall(data[:end])
            theirs.close()
            with pytest.raises(Broken, match="in the middle"):
                MessageChannel(ours, ToWorker).receive()


async def test_the_front_survives_that_too(pair: Pair) -> None:
    front = AsyncChannel(pair[0], FromWorker)
    pair[1].sendall(PREFIX.pack(100, 0))
    pair[1].close()
    with pytest.raises(Broken, match="in the middle"):
        await front.receive()
    for _ in range(3):
        front.send(*infer(5))
    front.close()


async def test_a_peer_that_leaves_unread_frames_behind(pair: Pair) -> None:
    front = AsyncChannel(pair[0], FromWorker)
    front.send(*infer(LARGE))
    pair[1].close()
    assert await front.receive() is None
    front.close()


def test_sending_to_nobody(pair: Pair) -> None:
    pair[0].close()
    with pytest.raises(Gone):
        MessageChannel(pair[1], ToWorker).send(Loaded(1))


def test_several_descriptors_are_refused_and_closed(pair: Pair) -> None:
    data = b"".join(encode(Load(1, "m", ENTRY, 8)))
    with given_away() as fd:
        pair[0].sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd, fd, fd]))])
        with pytest.raises(Broken, match="several descriptors"):
            MessageChannel(pair[1], ToWorker).receive()


@pytest.mark.parametrize("data", [b"".join(encode(Unload("x"))), PREFIX.pack(100, 0)], ids=["of another", "cut"])
def test_a_descriptor_of_a_broken_message_is_closed(pair: Pair, data: bytes) -> None:
    with given_away() as fd:
        socket.send_fds(pair[1], [data], [fd])
        pair[1].shutdown(socket.SHUT_WR)
        with pytest.raises(Broken):
            MessageChannel(pair[0], ToWorker).receive()


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        channel = MessageChannel(ours, ToWorker)
        if data:
            with pytest.raises(Broken):
                channel.receive()
        else:
            assert channel.receive() is None


def test_who_is_there(pair: Pair) -> None:
    assert peer(pair[0]) == (os.getpid(), os.geteuid())
