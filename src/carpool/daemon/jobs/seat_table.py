"""Seat tables (boards): the shared memory in which the jobs of one owner on one device see each other's seats.

A slot whose process is gone stays unused until no other job of the board can still name the slot as its successor (a
holder reads the name once, when it gives up its turn, which may happen just before the daemon's update).
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct

from carpool.daemon.jobs.owned_fd import OwnedFd
from carpool.daemon.system import futex
from carpool.protocol.seat import (
    BOARD_BYTES,
    BOARD_MAGIC,
    FIELDS,
    HEADER_BYTES,
    KIND_OFFSET,
    PROTOCOL,
    SEAT_BYTES,
    SEATS,
    Kind,
    Seat,
)

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class BoardError(Exception):
    """A board that cannot be used, or has no free seat."""


class Board:
    """One mapped board.  Slots are handed out round robin, so that a freed slot rests as long as possible."""

    def __init__(self, fd: int, owner: int) -> None:
        """Own ``fd``, the board of the user ``owner``.  Raises BoardError if it is not a board of this protocol."""
        if os.fstat(fd).st_size != BOARD_BYTES or fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise BoardError("not a board: wrong size or seals")
        self.held = OwnedFd(owner, fd)
        self._map = mmap.mmap(fd, BOARD_BYTES)
        self.view = memoryview(self._map)
        if struct.unpack_from("=II", self.view) != (BOARD_MAGIC, PROTOCOL):
            raise BoardError("not a board of this protocol version")
        anchor = ctypes.c_char.from_buffer(self._map)
        self._address = ctypes.addressof(anchor)
        self._taken: set[int] = set()
        self._resting: dict[int, dict[int, int]] = {}
        self._next = 0

    @classmethod
    def create(cls, name: str, owner: int, kind: Kind = Kind.HOST) -> Board:
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, BOARD_BYTES)
        os.pwrite(fd, struct.pack("=II", BOARD_MAGIC, PROTOCOL), 0)
        os.pwrite(fd, struct.pack("=I", kind), KIND_OFFSET)
        # Sealed: a job that truncated its board would otherwise kill the daemon with SIGBUS.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return cls(fd, owner)

    @property
    def inode(self) -> int:
        return os.fstat(self.held.fd).st_ino

    def seat(self, slot: int) -> Seat:
        return Seat(self.view, slot)

    def take(self) -> Seat:
        """Take and clear a free seat.  Raises BoardError when all seats are taken or resting."""
        for offset in range(SEATS):
            slot = (self._next + offset) % SEATS
            if slot not in self._taken and self._rested(slot):
                self._next = slot + 1
                self._taken.add(slot)
                seat = self.seat(slot)
                seat.clear()
                return seat
        raise BoardError(f"all {SEATS} seats are taken")

    def adopt(self, slot: int) -> Seat:
        """Mark a slot as taken by a job that an earlier daemon seated, and return its seat."""
        self._taken.add(slot)
        self._next = max(self._next, slot + 1)
        return self.seat(slot)

    def free(self, slot: int) -> None:
        """Free the seat of a process that is gone; it rests until every present holder has given its turn up once."""
        self._taken.discard(slot)
        self._resting[slot] = {s: self.seat(s).get("passed_seq") for s in self._taken if self.seat(s).get("turn")}

    def wake(self, seat: Seat, word: str) -> None:
        futex.wake(self._address + HEADER_BYTES + seat.slot * SEAT_BYTES + FIELDS[word][0])

    def notify(self, seat: Seat) -> None:
        """Ring the doorbell of the job's helper thread.

        If the daemon and a predecessor (which adds 1 atomically) ring at once, two rings may count as one: one is
        enough. The different step makes sure that the value never stays the same.
        """
        seat.set("bell", (seat.get("bell") + 0x10000) & 0xFFFFFFFF)
        self.wake(seat, "bell")

    def _rested(self, slot: int) -> bool:
        holders = self._resting.get(slot)
        if holders is None:
            return True
        if any(s in self._taken and self.seat(s).get("passed_seq") == seq for s, seq in holders.items()):
            return False
        del self._resting[slot]
        return True
