"""Ports of this machine: a free one for an engine, and the user who listens on one (asked for as in sock_diag(7))."""

from __future__ import annotations

import socket
import struct

HOST = "127.0.0.1"
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20  # the type of the question, and of an answer that is no error
REQUEST = 1
#: Length, type, flags, number and sender; family, protocol, extensions and states that are asked for.
HEADER = struct.Struct("=IHHIIBBBxI")
#: Its own port and the client's, its address and the client's; any interface, any cookie.
SOCKET = struct.Struct("!HH16s16sIII")
ANY_COOKIE = 0xFFFFFFFF
TYPE, UID_AT = struct.Struct("=4xH"), struct.Struct("=80xI")  # of an answer


def free_port() -> int:
    """Return a port on which no program listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listening_user(port: int) -> int | None:
    """Return the uid of the program that clients of `HOST` reach; None: there is none, or the kernel does not tell."""
    address, header = socket.inet_aton(HOST), (socket.AF_INET, socket.IPPROTO_TCP, 0, 0)
    length = HEADER.size + SOCKET.size
    question = HEADER.pack(length, SOCK_DIAG_BY_FAMILY, REQUEST, 1, 0, *header)
    question += SOCKET.pack(port, 0, address, b"", 0, ANY_COOKIE, ANY_COOKIE)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
            kernel.send(question)
            answer = kernel.recv(4096)
    except OSError:
        return None
    return UID_AT.unpack_from(answer)[0] if TYPE.unpack_from(answer) == (SOCK_DIAG_BY_FAMILY,) else None
