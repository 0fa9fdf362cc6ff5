"""A directory with a second name of the session socket and nothing else: containers mount it.

A file that is mounted stays the socket of the daemon that has ended; in a mounted directory the next daemon's appears.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from carpool.protocol.paths import Home

log = logging.getLogger(__name__)


def offer(session_socket: Path) -> None:
    """Nobody is let in whom the socket's own permissions keep out.  A failure is logged: only containers miss it."""
    name = Home(session_socket.parent).joining_socket
    try:
        name.parent.mkdir(mode=0o700, exist_ok=True)
        name.unlink(missing_ok=True)
        os.link(session_socket, name)
        # To be passed through, not to be listed, by a container's user of any uid.
        name.parent.chmod(0o711)
    except OSError as error:
        log.warning("processes in containers cannot join: %s cannot be made: %s", name, error)


def withdraw(session_socket: Path) -> None:
    """The daemon ends; the directory stays, because containers have it."""
    try:
        Home(session_socket.parent).joining_socket.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s", error)
