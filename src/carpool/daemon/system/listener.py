"""Accepting connections on a Unix socket, even when the daemon has no descriptors left."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

from carpool.daemon.system.peer import peer_credentials
from carpool.protocol.paths import Home

log = logging.getLogger(__name__)
#: How long no connection is accepted when descriptors or memory are short.
REST_S = 0.1
#: One for the connection of an administrator, one for the request made over it.
SPARE = 2
MOST_AT_ONCE = 128
#: Longer than any queue of connections.
MOST_SENT_AWAY = 4096


class SocketListener:
    """Hands each connection to ``accepted``, which owns it.

    Without descriptors only root and the daemon's own user get in, by spare ones; ``refused`` gets the connections of
    all others, which are then closed: otherwise these clients would wait for ever, and root behind them.
    """

    def __init__(
        self,
        listening: socket.socket,
        accepted: Callable[[socket.socket], None],
        refused: Callable[[socket.socket], None] = lambda _connection: None,
    ) -> None:
        """Take ownership of the socket.  Raises OSError."""
        listening.setblocking(False)
        self._socket = listening
        self._accepted = accepted
        self._refused = refused
        self._spare: list[int] = []
        self._short = False
        self._take_spare()

    def start(self) -> None:
        """Accept connections from now on."""
        asyncio.get_running_loop().add_reader(self._socket, self._readable)

    def close(self) -> None:
        """Stop accepting connections."""
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        self._give_spare()

    def _readable(self) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                connection = self._accept()
            except OSError as error:
                self._rest(error)
                return
            if connection is None:
                return
            self._short = False
            self._accepted(connection)

    def _accept(self) -> socket.socket | None:
        """Accept one connection; None: no connection waits.  Raises OSError if a resource is short."""
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        connection.setblocking(False)
        return connection

    def _rest(self, error: OSError) -> None:
        """Stop accepting for `REST_S`; the shortage is logged once, until it is over."""
        if not self._short:
            log.error("connections cannot be accepted: %s; root and the daemon's own user are let in", error)
        self._short = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        loop.call_later(REST_S, self._go_on)
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self._accept_with_spare()

    def _go_on(self) -> None:
        self._take_spare()
        if self._socket.fileno() >= 0:
            self.start()

    def _accept_with_spare(self) -> None:
        self._give_spare()
        for _ in range(MOST_SENT_AWAY):
            try:
                connection = self._accept()
            except OSError:
                break  # an administrator has got the spare descriptors
            if connection is None:
                break
            self._let_in(connection)
        self._take_spare()

    def _let_in(self, connection: socket.socket) -> None:
        if _is_administrator(connection):
            self._accepted(connection)
        else:
            self._refused(connection)
            connection.close()

    def _give_spare(self) -> None:
        while self._spare:
            os.close(self._spare.pop())

    def _take_spare(self) -> None:
        """Take as many spare descriptors as there are, up to `SPARE`."""
        try:
            while self._socket.fileno() >= 0 and len(self._spare) < SPARE:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass  # tried again after the next rest


class Guests:
    """Makes protocols for accepted connections."""

    def __init__(self, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        self._protocol = protocol
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps no task alive

    def come(self, connection: socket.socket) -> None:
        """Make a protocol for a connection; takes ownership of the connection."""
        task = asyncio.create_task(self._come(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _come(self, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)


def _is_administrator(connection: socket.socket) -> bool:
    try:
        return peer_credentials(connection)[1] in (0, os.geteuid())
    except OSError:
        return False


def offer_to_containers(session_socket: Path) -> None:
    """Make a directory with a second name of the session socket and nothing else, for containers to mount.

    A mounted file would remain the socket of a daemon that has ended; in a mounted directory the next daemon's socket
    appears.  The socket's permissions still apply.  A failure, logged, affects containers only.
    """
    name = Home(session_socket.parent).joining_socket
    try:
        name.parent.mkdir(mode=0o700, exist_ok=True)
        name.unlink(missing_ok=True)
        os.link(session_socket, name)
        # Users in containers, whatever their uid, may pass through the directory but not list it.
        name.parent.chmod(0o711)
    except OSError as error:
        log.warning("processes in containers cannot join: %s cannot be made: %s", name, error)


def withdraw_from_containers(session_socket: Path) -> None:
    """Remove the name when the daemon ends; the directory stays, because containers have it mounted."""
    try:
        Home(session_socket.parent).joining_socket.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s", error)
