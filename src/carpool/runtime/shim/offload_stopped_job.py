"""Copies a stopped job's memory from its device buffer (*bank*) to its store, in the shim.  Standard library only.

The job itself would do this, but it is stopped.  The state bytes of the store are set last, when everything has been
copied: until then the copy has no effect, and a shim that fails or ends leaves no trace.  The layout of the store and
the words of the seat are those of ``src/native/abi/seat.h``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterator

CHUNK = 2 << 20
IN_DEVICE, IN_STORE = 0, 1
BUSY, WITHDRAWN = "busy", "withdrawn"  # as in carpool.protocol.session
_TURN, _OFFLOAD, _OFFLOADED = 0, 60, 232  # words of the seat
_ASKED = 1
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)


class Taking:
    """One request.  ``error`` and ``bytes`` are the answer once `step` has returned True."""

    def __init__(self, bank: int | None, store: int | None) -> None:
        self.error: str | None = None
        self.bytes = 0
        self._fds: list[int] = []
        self._pieces: Iterator[tuple[int, int]] = iter(())
        self._chunks: list[int] = []
        self._copied: list[tuple[int, int]] = []  # pages that the store did not have before
        self._kept = (bank, store)

    def step(self, seat: Callable[[], bytes]) -> bool:
        """Copy one piece of at most a chunk; return True at the end.  ``seat`` reads the job's seat."""
        try:
            return self.error is not None or self._step(seat)
        except OSError as error:
            self.error = error.strerror or str(error)
            return True
        finally:
            if self.error is not None:
                self._undo()
                self._close()

    def _step(self, seat: Callable[[], bytes]) -> bool:
        if not self._fds:
            self._begin(seat)
            return self.error is not None
        bank, store = self._fds
        piece = next(self._pieces, None)
        if piece is not None:
            self._copied += holes(store, *piece)
            _copy(bank, store, *piece)
            self.bytes += piece[1] - piece[0]
            return False
        self._check(seat())
        if self.error is not None:
            return True
        states = os.fstat(bank).st_size
        self._copied = []  # from the first state byte on the copy is valid
        for chunk in self._chunks:
            os.pwrite(store, bytes([IN_STORE]), states + chunk)
        self._close()
        return True

    def _begin(self, seat: Callable[[], bytes]) -> None:
        if None in self._kept:
            self.error = "its shim does not hold its memory"
            return
        # Own open file descriptions, to which the lock and the file positions belong.
        for fd in self._kept:
            self._fds.append(os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC))
        bank, store = self._fds
        if not lock(store):
            self.error = BUSY
            return
        self._check(seat())
        size = os.fstat(bank).st_size
        states = os.pread(store, size // CHUNK, size)
        # The part in the store is counted in whole chunks, as it was copied.
        self.bytes = states.count(bytes([IN_STORE])) * CHUNK
        found = [(begin, end) for begin, end in extents(bank, size) if states[begin // CHUNK] == IN_DEVICE]
        self._chunks = sorted({begin // CHUNK for begin, _ in found})
        self._pieces = iter(found)

    def _check(self, seat: bytes) -> None:
        """Withdraw the request if the job has a turn or is offloaded, or if its seat no longer asks for the offload."""
        if not seat or _word(seat, _TURN) or _word(seat, _OFFLOADED) or _word(seat, _OFFLOAD) != _ASKED:
            self.error = WITHDRAWN

    def _undo(self) -> None:
        """Give back the pages that were copied in vain, so that others can use the memory; the lock is still held."""
        for begin, end in self._copied:
            punch(self._fds[1], begin, end - begin)
        self._copied = []

    def _close(self) -> None:
        """Close the files, which also releases the lock."""
        while self._fds:
            os.close(self._fds.pop())


def lock(fd: int) -> bool:
    """Take the mover's lock for the open file description behind ``fd``; return False if another process has it."""
    try:
        fcntl.fcntl(fd, _SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges (begin, end) in which the file has pages, split at the borders of chunks."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole from here on
            return
        end = min(os.lseek(fd, begin, os.SEEK_HOLE), size)
        while begin < end:
            border = min(end, (begin // CHUNK + 1) * CHUNK)
            yield begin, border
            begin = border


def holes(fd: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges between ``begin`` and ``end`` in which the file has no content."""
    while begin < end:
        try:
            data = min(os.lseek(fd, begin, os.SEEK_DATA), end)
        except OSError:  # ENXIO: nothing but a hole from here on
            data = end
        if begin < data:
            yield begin, data
        begin = min(os.lseek(fd, data, os.SEEK_HOLE), end) if data < end else end


def punch(fd: int, offset: int, size: int) -> None:
    """Give the pages back, if the file system can."""
    import ctypes  # late: seldom needed, and slow to load

    call = ctypes.CDLL(None).fallocate
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    call(fd, _PUNCH_HOLE | _KEEP_SIZE, offset, size)


def _copy(source: int, target: int, begin: int, end: int) -> None:
    os.lseek(target, begin, os.SEEK_SET)
    while begin < end:
        copied = os.sendfile(target, source, begin, end - begin)
        if not copied:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        begin += copied


def _word(seat: bytes, offset: int) -> int:
    return int(struct.unpack_from("=I", seat, offset)[0])
