"""The place where the server listens: a free port of 127.0.0.1, or a Unix socket that only its user can open."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

BACKLOG = 64
HOST = "127.0.0.1"


class PlaceError(Exception):
    """The server cannot listen there; the text says what to do."""


class ListeningPlace(NamedTuple):
    """``port``: None on a Unix socket, whose path is ``path``."""

    listener: socket.socket
    port: int | None = None
    path: Path | None = None

    def close(self) -> None:
        """Close the listener, and remove its socket from the file system."""
        self.listener.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def on_port(port: int) -> ListeningPlace:
    """Listen on a port of 127.0.0.1; 0: any free port.  Raises PlaceError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier server may have ended just now
        listener.bind((HOST, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PlaceError(
            f"cannot listen on port {port}: {error.strerror}; choose another --port, or leave it out"
        ) from None
    return ListeningPlace(listener, int(listener.getsockname()[1]))


def on_socket(path: Path) -> ListeningPlace:
    """Listen on a socket of mode 0600 in a directory that only this user can write to.  Raises PlaceError."""
    _check_directory(path.parent)
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PlaceError(f"cannot listen on {path}: {error.strerror or error}; choose another --socket") from None
    finally:
        os.umask(before)
    return ListeningPlace(listener, path=path)


def _check_directory(directory: Path) -> None:
    try:
        about = directory.stat()
    except OSError as error:
        raise PlaceError(f"cannot make a socket in {directory}: {error.strerror}") from None
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PlaceError(f"others can replace files in {directory}: choose a directory of your own, of mode 0700")


def _remove_stale(path: Path) -> None:
    """Remove a socket on which no process listens any more.  Raises PlaceError for anything else at ``path``."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise PlaceError(f"{path} is there, and is no socket: choose another --socket")
        with socket.socket(socket.AF_UNIX) as probe, suppress(ConnectionRefusedError):
            probe.connect(os.fspath(path))
            raise PlaceError(f"something listens on {path} already: end it, or choose another --socket")
        path.unlink()
