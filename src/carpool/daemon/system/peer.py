"""Who is at the other end of a Unix socket."""

from __future__ import annotations

import socket
import struct

_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid


def peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    """(pid, uid, gid) of the process that connected."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(data)
