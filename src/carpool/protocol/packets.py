"""Shared by shims, device agents and the daemon: packets with descriptors over SOCK_SEQPACKET, and /proc/PID/stat.

One packet is one message, JSON in UTF-8; descriptors travel with it by SCM_RIGHTS.  The messages are defined in
`carpool.protocol.session` and `carpool.devices.cuda.messages`.

Standard library only, since the shim uses it too, from Python 3.9 on.  `socket.send_fds` and `socket.recv_fds` are not
used: both ignore their flags, without which descriptors would be inherited by every program that is started later.
"""

from __future__ import annotations

import array
import math
import os
import select
import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
#: Largest message in bytes, and the most descriptors that travel with one (the kernel's SCM_MAX_FD is 253).
MAX_MESSAGE = 64 * 1024
MAX_FDS = 16


class MalformedPacket(ValueError):
    """A packet came that is no message.  Its descriptors have been closed."""


def send(connection: socket.socket, data: bytes, fds: Sequence[int] = (), flags: int = 0) -> None:
    """Send one packet; the descriptors stay the caller's.  Raises OSError."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    connection.sendmsg([data], rights, flags)


def receive(connection: socket.socket, decode: Callable[[bytes], T], flags: int = 0) -> tuple[T, list[int]] | None:
    """Return the next message and its descriptors, which the caller owns; None if the other end has closed.

    ``decode`` makes the message and raises ValueError or RecursionError if it cannot.  Raises MalformedPacket and
    OSError, of which BlockingIOError and TimeoutError mean that nothing has come yet.
    """
    room = socket.CMSG_LEN(MAX_FDS * array.array("i").itemsize)
    data, ancillary, _, _ = connection.recvmsg(MAX_MESSAGE, room, flags | socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, part in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(part[: len(part) - len(part) % fds.itemsize])
    if not data:
        return None
    try:
        return decode(data), fds.tolist()
    except (ValueError, RecursionError) as error:
        for fd in fds:
            os.close(fd)
        raise MalformedPacket(f"malformed message: {error}") from None


def readable(fd: int, timeout_s: float | None = 0.0) -> bool:
    """Whether ``fd`` can be read, or has ended, within ``timeout_s``; None waits without a limit."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1000)))


#: Places in `stat_fields`: state, parent, session, flags, number of threads, start in ticks since boot, wait status.
STATE, PARENT, SESSION, FLAGS, THREADS, START, EXIT_CODE = 0, 1, 3, 6, 17, 19, 49
OVER = (b"Z", b"X")  # states of a process whose main thread has ended
STOPPED = (b"T", b"t")  # by a signal, by a debugger


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields from the third, the state, on; empty if there is no such process, or it may not be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read(4096).rpartition(b")")[2].split()
    except OSError:
        return []


def lives(fields: list[bytes]) -> bool:
    """Return whether a process with these `stat_fields` lives: while any thread does, its main thread may be over."""
    return bool(fields) and (fields[STATE] not in OVER or int(fields[THREADS]) > 1)
