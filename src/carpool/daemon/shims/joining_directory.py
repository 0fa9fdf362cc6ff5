"""A directory with a second name of the session socket and nothing else, for containers to mount.

A mounted file would remain the socket of a daemon that has ended; in a mounted directory the next daemon's socket
appears.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from carpool.protocol.paths import Home

log = logging.getLogger(__name__)


def offer(session_socket: Path) -> None:
    """Make the second name; the socket's permissions still apply.  A failure, logged, affects containers only."""
    name = Home(session_socket.parent).joining_socket
    try:
        name.parent.mkdir(mode=0o700, exist_ok=True)
        name.unlink(missing_ok=True)
        os.link(session_socket, name)
        # Users in containers, whatever their uid, may pass through the directory but not list it.
        name.parent.chmod(0o711)
    except OSError as error:
        log.warning("processes in containers cannot join: %s cannot be made: %s", name, error)


def withdraw(session_socket: Path) -> None:
    """Remove the name when the daemon ends; the directory stays, because containers have it mounted."""
    try:
        Home(session_socket.parent).joining_socket.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s", error)
