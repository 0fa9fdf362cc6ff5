"""Messages of shims and agents come as they were sent, with their descriptors, and nothing leaks."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import socket
from collections.abc import Iterator

import msgspec
import pytest

from carpool.devices.cuda import messages
from carpool.protocol import packets, session
from carpool.protocol.packets import readable
from tests.descriptors import descriptors

TOO_LONG = b'"' + b"a" * packets.MAX_MESSAGE + b'"'


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def test_a_message_and_its_descriptors(ends: tuple[socket.socket, socket.socket]) -> None:
    given = [os.memfd_create(f"number {number}") for number in range(packets.MAX_FDS)]
    for number, fd in enumerate(given):
        os.ftruncate(fd, number)
    packets.send(ends[0], b'{"type":"a"}', given)
    received = packets.receive(ends[1], json.loads)
    assert received is not None
    message, fds = received
    assert message == {"type": "a"}
    assert [os.fstat(fd).st_size for fd in fds] == list(range(packets.MAX_FDS))
    assert not any(os.get_inheritable(fd) for fd in fds)
    for fd in (*given, *fds):
        os.close(fd)


def test_packets_are_not_joined(ends: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(BlockingIOError):
        packets.receive(ends[1], json.loads, socket.MSG_DONTWAIT)
    for number in range(3):
        packets.send(ends[0], json.dumps(number).encode())
    assert [packets.receive(ends[1], json.loads) for _ in range(3)] == [(0, []), (1, []), (2, [])]
    ends[0].close()
    assert packets.receive(ends[1], json.loads) is None, "the end"


@pytest.mark.parametrize(
    "decode", [json.loads, session.decode_from_shim, messages.decode_answer], ids=["shim", "daemon", "agent"]
)
@pytest.mark.parametrize(
    "text", [b"{", b"\xff", b'"' + b"a" * packets.MAX_MESSAGE + b'"'], ids=["short", "bytes", "long"]
)
def test_descriptors_of_what_is_no_message_are_closed(
    ends: tuple[socket.socket, socket.socket], decode: object, text: bytes
) -> None:
    before = descriptors()
    packets.send(ends[0], text, [ends[0].fileno()])
    with pytest.raises(packets.MalformedPacket, match="malformed message"):
        packets.receive(ends[1], decode)  # type: ignore[arg-type]
    assert descriptors() == before


def test_what_one_side_writes_the_other_reads(ends: tuple[socket.socket, socket.socket]) -> None:
    """The shim's side is the standard library's JSON, the daemon's is msgspec's."""
    packets.send(ends[0], json.dumps({"type": "started", "pid": 7}).encode())
    assert packets.receive(ends[1], session.decode_from_shim) == (session.Started(7), [])
    packets.send(ends[1], msgspec.json.encode(session.Signal(15)))
    assert packets.receive(ends[0], json.loads) == ({"type": "signal", "signal": 15}, [])


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The end to read has a number that `select.select` refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    read_end, write_end = os.pipe()
    large = fcntl.fcntl(read_end, fcntl.F_DUPFD_CLOEXEC, 1024)
    yield large, write_end
    for fd in (large, read_end, write_end):
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_number_above_1023_is_like_any_other(pipe: tuple[int, int]) -> None:
    large, write_end = pipe
    assert not readable(large) and not readable(large, 0.001) and not readable(large, -1.0)
    os.write(write_end, b"x")
    assert readable(large) and readable(large, None)
