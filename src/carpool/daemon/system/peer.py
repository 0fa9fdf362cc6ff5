"""Who is at the other end of a Unix socket."""

from __future__ import annotations

import array
import errno
import socket
import struct

_SO_PEERGROUPS = 59  # asm-generic/socket.h; Python has no name for it
_LARGEST = 1024  # bytes that Python reads of a socket option: 256 groups
_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid


def peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    """(pid, uid, gid) of the process that connected."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(data)


def peer_groups(connection: socket.socket) -> tuple[int, ...]:
    """Supplementary groups of the process that connected, as they were at that moment.

    A process in more than 256 groups counts as one in none: a right is not given by mistake.
    """
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _LARGEST)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        return ()
    return tuple(array.array("I", data))
