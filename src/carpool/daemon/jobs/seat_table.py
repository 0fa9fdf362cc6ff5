"""Seat tables (boards) and the descriptors of memory that the daemon sends to jobs.

The daemon of several users holds the memory of all of them.  Code that sends a descriptor to a job's process or shim
names the memory's owner, as noted when the memory was made, and sends what `release` returns.

A slot whose process is gone stays unused until no other job of the board can still name the slot as its successor (a
holder reads the name once, when it gives up its turn, which may happen just before the daemon's update).
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from carpool.devices.base import DeviceError
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
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAKE = 1
_EVERYBODY = 2**31 - 1
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_int]


class WrongOwner(DeviceError):
    """Memory of one user was about to be sent to another user: a bug in the daemon.  Nothing was sent."""


@dataclass(frozen=True, slots=True)
class OwnedFd:
    """A descriptor of memory that only processes of the user ``owner`` (a uid) may get."""

    owner: int
    fd: int


def release(held: Iterable[OwnedFd], to: int | None) -> list[int]:
    """Return the descriptors for a process of the user ``to``.  Raises WrongOwner if any belongs to another user."""
    descriptors = []
    for each in held:
        if each.owner != to:
            raise WrongOwner(f"memory of uid {each.owner} is not sent to a process of uid {to}")
        descriptors.append(each.fd)
    return descriptors


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
        """Make an empty board for the user ``owner``."""
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, BOARD_BYTES)
        os.pwrite(fd, struct.pack("=II", BOARD_MAGIC, PROTOCOL), 0)
        os.pwrite(fd, struct.pack("=I", kind), KIND_OFFSET)
        # Sealed: a job that truncated its board would otherwise kill the daemon with SIGBUS.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return cls(fd, owner)

    @property
    def inode(self) -> int:
        """The inode of the board's file."""
        return os.fstat(self.held.fd).st_ino

    def seat(self, slot: int) -> Seat:
        """Return the seat in a slot."""
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
        """Wake those that wait for a word of the seat to change."""
        wake_word(self._address + HEADER_BYTES + seat.slot * SEAT_BYTES + FIELDS[word][0])

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


# Waking futexes; the daemon never waits on one.


def wake_word(address: int) -> int:
    """Wake all waiters on the 32-bit word at ``address``, and return how many there were.  Raises OSError."""
    woken = _syscall(_number(), address, _FUTEX_WAKE, _EVERYBODY, None, None, 0)
    if woken < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(woken)


def _number() -> int:
    try:
        return _SYS_FUTEX[platform.machine()]
    except KeyError:
        raise RuntimeError(f"Carpool does not know this machine: {platform.machine()}") from None
