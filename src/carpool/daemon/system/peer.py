"""The process at the other end of a Unix socket."""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import struct

from carpool.daemon.system.processes import start_time

_SO_PEERGROUPS = 59  # asm-generic/socket.h; Python has no name for it
_SO_PEERPIDFD = 77  # the same
_LARGEST = 1024  # bytes that Python reads of a socket option: 256 groups
_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid


def peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    """Return (pid, uid, gid) of the process that connected."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(data)


def peer_groups(connection: socket.socket) -> tuple[int, ...]:
    """Return the supplementary groups of the process that connected, as they were at that moment.

    A process in more than 256 groups counts as being in none, so that no right is given by mistake.
    """
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _LARGEST)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        return ()
    return tuple(array.array("I", data))


def peer_pidfd(connection: socket.socket) -> int:
    """Return a pidfd of the process that connected.  Raises ProcessLookupError if it has ended, and OSError.

    On kernels before 6.5 the process is found by pid; that the connection is still open shows that the pid was still
    valid.
    """
    try:
        fd: int = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise ProcessLookupError(errno.ESRCH, "the process at the other end has ended") from error
        return _opened_by_number(connection)
    return fd


def _opened_by_number(connection: socket.socket) -> int:
    pid = peer_credentials(connection)[0]
    started = start_time(pid)
    fd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(connection, 0)
    if poll.poll(0) or not started or start_time(pid) != started:
        os.close(fd)
        raise ProcessLookupError(errno.ESRCH, "the process at the other end has ended")
    return fd
