"""How a worker finds its front: by two environment variables, not by its command line, which all users can read."""

from __future__ import annotations

import os
import socket

from carpool.serve.wire.channel import peer

SOCKET, TOKEN = "CARPOOL_SERVE_SOCKET", "CARPOOL_SERVE_TOKEN"


class NoFront(Exception):
    """There is no front to work for; the text gives the reason."""


def connect() -> tuple[socket.socket, str]:
    """Return a connection to the front, and the token to show.  Children of this process do not inherit them.

    Raises NoFront.
    """
    path, token = os.environ.pop(SOCKET, None), os.environ.pop(TOKEN, None)
    if path is None or token is None:
        raise NoFront(f"{SOCKET} and {TOKEN} are not set: workers are started by `carpool serve`")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
        _, uid = peer(connection)
        if uid != os.geteuid():
            raise NoFront(f"{path} is a socket of user {uid}")
    except OSError as error:
        connection.close()
        raise NoFront(f"no server listens at {path}: {error.strerror or error}") from None
    except NoFront:
        connection.close()
        raise
    return connection, token
