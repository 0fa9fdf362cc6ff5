"""The process at the other end of a connection, and the person behind a uid.

A user with a range of uids in ``/etc/subuid`` is one person, with one set of limits.  Rights go by uid and belong to
that uid only; if limits went by uid, such a user would have each 65,536 times over.
"""

from __future__ import annotations

import array
import errno
import logging
import os
import pwd
import select
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from carpool.daemon.system.processes import start_time
from carpool.protocol.paths import open_regular

log = logging.getLogger(__name__)
SUBUIDS = "/etc/subuid"
LARGEST_BYTES = 16 << 20
#: Number of uids whose person is remembered, until the file changes.
MOST_KNOWN = 100_000
_SO_PEERGROUPS = 59  # asm-generic/socket.h; Python has no name for it
_SO_PEERPIDFD = 77  # the same
_LARGEST = 1024  # bytes that Python reads of a socket option: 256 groups
_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid


@dataclass(frozen=True, slots=True)
class _Range:
    first: int
    count: int
    owner: str  # a name, or a uid in digits

    @property
    def person(self) -> int:
        """The owner's uid; if that is root or unknown, the range is a person of its own."""
        try:
            uid = int(self.owner) if self.owner.isdecimal() else pwd.getpwnam(self.owner).pw_uid
        except (KeyError, ValueError):
            return self.first
        return uid or self.first


class Persons:
    """Maps uids to persons, and reads the file again when it has changed."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._ranges: tuple[_Range, ...] = ()
        self._known: dict[int, int] = {}

    def of(self, uid: int) -> int:
        """Return the uid under which this uid's limits are counted: its own, unless it is in another user's range."""
        self._look()
        if not self._ranges:
            return uid
        if uid not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[uid] = next((each.person for each in self._ranges if 0 <= uid - each.first < each.count), uid)
        return self._known[uid]

    def _look(self) -> None:
        try:
            found = Path(SUBUIDS).stat()
            seen: tuple[object, ...] = (SUBUIDS, found.st_ino, found.st_mtime_ns, found.st_size)
        except OSError:
            seen = ()
        if seen != self._seen:
            self._seen, self._ranges, self._known = seen, _ranges() if seen else (), {}


def _ranges() -> tuple[_Range, ...]:
    """Return the ranges in the file; malformed lines are ignored, as ``newuidmap`` does."""
    try:
        with open(open_regular(Path(SUBUIDS)), encoding="utf-8", errors="replace") as file:
            lines = file.read(LARGEST_BYTES).splitlines()
    except OSError as error:
        log.warning("cannot read %s, so each uid counts as a person of its own: %s", SUBUIDS, error)
        return ()
    return tuple(found for line in lines if (found := _range(line)) is not None)


def _range(line: str) -> _Range | None:
    owner, *numbers = line.strip().split(":")
    if len(numbers) != 2 or not owner or not all(number.isascii() and number.isdecimal() for number in numbers):
        return None
    first, count = map(int, numbers)
    return _Range(first, count, owner) if first else None


_persons = Persons()


def person_of(uid: int) -> int:
    """Return the uid under which the limits of this uid are counted."""
    return _persons.of(uid)


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
