"""Host stores in the agent: mapped, and pinned piece by piece, once and for as long as a store is kept.

Pinning is slow, and so are copies without pinning: so a pinned piece stays pinned until the store is forgotten, and
pieces are pinned ahead, in a thread, where a move is to be expected.

A store always has exactly what was saved, because what has no page there reads as zeros.  So any agent can go on with a
store; that an agent knows blocks of zeros among pinned pages only spares copies.

Not yet run on a GPU.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from typing import Any

from carpool.devices import memfd
from carpool.devices.base import DeviceError
from carpool.devices.cuda.memory import DriverDevice
from carpool.devices.cuda.zeros import BLOCK, whole_blocks

#: Large enough for the full speed of the link, small enough that a store with little content pins little memory.
PIECE = 8 << 20


class PinnedStore:
    """A store's memory in this process, for one thread at a time.  Does not own the descriptor."""

    def __init__(self, gpu: DriverDevice, fd: int) -> None:
        self._gpu = gpu
        self._size = os.fstat(fd).st_size
        self._memory = mmap.mmap(fd, self._size)
        self._memory.madvise(mmap.MADV_DONTDUMP)  # a job's memory must not be in a core dump of the agent
        self._anchor = ctypes.c_char.from_buffer(self._memory)
        self._address = ctypes.addressof(self._anchor)
        self._pinned: set[int] = set()  # numbers of pieces
        self._zero = _holes(fd, self._size)  # a flag for each block: 1 if it is known to hold nothing but zeros

    def pieces(self, offset: int, size: int) -> Iterator[tuple[int, int, int]]:
        """Yield (bytes from ``offset`` on, address, size) of pinned memory, never across the border of two pieces.

        Raises ValueError for a range outside the store, DriverError.
        """
        if not 0 <= offset <= offset + size <= self._size:
            raise ValueError(f"bytes {offset} to {offset + size} of a store of {self._size}")
        done = 0
        while done < size:
            place = offset + done
            number = place // PIECE
            self._pin(number)
            length = min(size - done, (number + 1) * PIECE - place)
            yield done, self._address + place, length
            done += length

    def zero(self, begin: int, end: int) -> bytes:
        """Return a flag for each of the `whole_blocks` between two offsets: 1 if it is known to be zero."""
        blocks = whole_blocks(begin, end)
        return bytes(self._zero[blocks.start : blocks.stop]) if blocks else b""

    def written(self, begin: int, end: int) -> None:
        """Forget which blocks are zero, before these bytes are copied to the store."""
        _unmark(self._zero, begin, end)

    def cleared(self, begin: int, zero: bytes) -> None:
        """Note which of the blocks from ``begin`` on are zero, now that they have been copied; see `zero`."""
        first = whole_blocks(begin, begin).start
        self._zero[first : first + len(zero)] = zero

    def pin_next(self, size: int) -> bool:
        """Pin one more piece of the first ``size`` bytes.  False: all are pinned already.  Raises DriverError."""
        numbers = range(-(-min(size, self._size) // PIECE))
        number = next((number for number in numbers if number not in self._pinned), None)
        if number is not None:
            self._pin(number)
        return number is not None

    def close(self) -> None:
        """Unpin all pieces, and unmap the store."""
        for number in sorted(self._pinned):
            self._gpu.unpin(self._address + number * PIECE)
        self._pinned.clear()
        del self._anchor  # the mapping cannot be closed while another object has its address
        self._memory.close()

    def _pin(self, number: int) -> None:
        if number not in self._pinned:
            begin = number * PIECE
            self._gpu.pin(self._address + begin, min(PIECE, self._size - begin))
            self._pinned.add(number)


def _holes(fd: int, size: int) -> bytearray:
    """Return a flag for each whole block of a file: 1 if the file has no page there."""
    flags = bytearray(b"\1") * (size // BLOCK)
    for begin, end in memfd.extents(fd):
        _unmark(flags, begin, end)
    return flags


def _unmark(flags: bytearray, begin: int, end: int) -> None:
    """Set to 0 the flags of all blocks that have bytes between two offsets."""
    first, last = begin // BLOCK, min(-(-end // BLOCK), len(flags))
    flags[first:last] = bytes(max(0, last - first))


class PinningAhead:
    """Pins stores piece by piece in a thread, which runs while there is a store to pin.

    A store belongs to the thread from `begin` to `leave`; no other thread may use it meanwhile.
    """

    def __init__(self, gpu: DriverDevice) -> None:
        self._gpu = gpu
        self._changed = threading.Condition()
        self._wanted: dict[PinnedStore, int] = {}  # bytes, in the order in which they are pinned
        self._store: PinnedStore | None = None  # of which a piece is being pinned
        self._runs = False

    def begin(self, store: PinnedStore, size: int) -> None:
        """Pin the first ``size`` bytes of a store, as far as possible before `leave`."""
        context = self._gpu.context()
        with self._changed:
            self._wanted[store] = size
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, args=[context], daemon=True).start()

    def leave(self, store: PinnedStore) -> None:
        """Give a store back to the caller.  Waits at most for the piece that is being pinned."""
        with self._changed:
            self._wanted.pop(store, None)
            self._changed.wait_for(lambda: self._store is not store)

    def stop(self) -> None:
        """Stop pinning, and wait until the thread no longer needs its context."""
        with self._changed:
            self._wanted.clear()
            self._changed.wait_for(lambda: not self._runs)

    def _run(self, context: Any) -> None:
        while (found := self._next()) is not None:
            more = self._pin_piece(context, *found)
            self._pinned(*found, more)

    def _next(self) -> tuple[PinnedStore, int] | None:
        with self._changed:
            self._store = next(iter(self._wanted), None)
            self._runs = self._store is not None
            self._changed.notify_all()
            return None if self._store is None else (self._store, self._wanted[self._store])

    def _pin_piece(self, context: Any, store: PinnedStore, size: int) -> bool:
        """Pin a piece; return whether there may be more.  If pinning fails, the copy tries again."""
        try:
            self._gpu.enter(context)
            return store.pin_next(size)
        except DeviceError:
            return False

    def _pinned(self, store: PinnedStore, size: int, more: bool) -> None:
        with self._changed:
            if not more and self._wanted.get(store) == size:
                del self._wanted[store]
