"""Packets of jobs, messages of shims with descriptors, and submissions at the API."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import msgspec

from carpool.daemon.api.call import decode_body
from carpool.daemon.api.checks import check_directory, check_numbers, check_texts
from carpool.daemon.system.errors import RequestError
from carpool.protocol import packets
from carpool.protocol.api import SubmitRequest
from carpool.protocol.seat import Packet
from carpool.protocol.session import decode_from_shim


def packet(data: bytes) -> None:
    """48 bytes of a job."""
    with suppress(ValueError):
        found = Packet.decode(data)
        assert found.encode() == data


def session(data: bytes) -> None:
    """The first byte says how many descriptors come with the message; all that are not handed on are closed."""
    before = _descriptors()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, suppress(packets.MalformedPacket):
        count = data[0] % (packets.MAX_FDS + 3) if data else 0
        packets.send(theirs, data[1:] or b"{", [theirs.fileno()] * count)
        received = packets.receive(ours, decode_from_shim)
        assert received is not None
        message, fds = received
        for fd in fds:
            os.close(fd)
        assert decode_from_shim(msgspec.json.encode(message)) == message
    assert _descriptors() == before


def _descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def submission(data: bytes) -> None:
    """What the API checks before anything is kept."""
    with suppress(RequestError):
        spec = decode_body(data, SubmitRequest)
        check_texts("the command", spec.argv, spec.env)
        check_directory(spec.cwd)
        check_numbers(spec)
        assert decode_body(msgspec.json.encode(spec), SubmitRequest) == spec
