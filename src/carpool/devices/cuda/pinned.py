"""Host stores as the agent handles them: mapped, and pinned piece by piece, once and for as long as they are kept.

Pinning is slow and copies without it are too, so a piece that was pinned stays so until the store is forgotten.

Not yet run on a GPU.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator

from carpool.devices.cuda.memory import DriverDevice

#: Large enough for the speed of the link, small enough that a little store pins little.
PIECE = 32 << 20


class PinnedStore:
    """A store's memory in this process.  Does not own the descriptor."""

    def __init__(self, gpu: DriverDevice, fd: int) -> None:
        self._gpu = gpu
        self._size = os.fstat(fd).st_size
        self._memory = mmap.mmap(fd, self._size)
        self._memory.madvise(mmap.MADV_DONTDUMP)  # a job's memory: nothing for a core of the agent's
        self._anchor = ctypes.c_char.from_buffer(self._memory)
        self._address = ctypes.addressof(self._anchor)
        self._pinned: set[int] = set()  # numbers of pieces

    def pieces(self, offset: int, size: int) -> Iterator[tuple[int, int, int]]:
        """(bytes from ``offset`` on, address, size) of pinned memory; none across the border of what was pinned.

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

    def close(self) -> None:
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
