"""The height of an arena: a mirror of libcarpool's block allocator (``native/arena/pool.c``) that moves no bytes.

A lane has to back the *extent* of the blocks in it, gaps included, so the sum of live bytes would promise too little.
Two-level segregated fit (Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004)
with the untouched rest above.  Positions and sizes are in grains of 256 bytes; the test plays the same requests through
both allocators.
"""

from __future__ import annotations

GRAIN = 256  # bytes
_STEPS = 32  # size classes per power of two
_TRIES = 64  # blocks of the last class that are looked at


class AllocatorMirror:
    """Blocks by position.  ``high``: bytes that the highest block has ever reached."""

    def __init__(self) -> None:
        self.live = 0  # bytes in blocks
        self._top = self._high = 0
        self._last = -1  # the highest block
        self._size: dict[int, int] = {}
        self._left: dict[int, int] = {}  # the lower neighbour of each block, -1 for the first
        self._idle: set[int] = set()
        self._lists: dict[int, dict[int, None]] = {}  # size class: idle blocks, the latest last
        self._filled = 0  # bit per size class with blocks

    @property
    def high(self) -> int:
        return self._high * GRAIN

    @property
    def top(self) -> int:
        """Bytes up to the end of the highest block at present."""
        return self._top * GRAIN

    def allocate(self, size_bytes: int) -> int:
        """Allocate a block; return its position, for `free`."""
        size = max(1, -(-size_bytes // GRAIN))
        self.live += size * GRAIN
        block = self._find(size)
        if block < 0:
            return self._on_top(size)
        self._unlist(block)
        self._split(block, size)
        return block

    def free(self, block: int) -> None:
        self.live -= self._size[block] * GRAIN
        right, left = block + self._size[block], self._left[block]
        if right in self._idle:
            self._unlist(right)
            self._absorb(block, right)
        if left in self._idle:
            self._unlist(left)
            self._absorb(left, block)
            block = left
        if block != self._last:
            self._list(block)
            return
        self._top, self._last = block, self._left.pop(block)
        del self._size[block]

    def _on_top(self, size: int) -> int:
        block, self._left[self._top] = self._top, self._last
        self._size[block], self._last = size, block
        self._top += size
        self._high = max(self._high, self._top)
        return block

    def _split(self, block: int, size: int) -> None:
        rest = self._size[block] - size
        if not rest:
            return
        self._size[block], self._size[block + size], self._left[block + size] = size, rest, block
        if self._last == block:
            self._last = block + size
        else:
            self._left[block + size + rest] = block + size
        self._list(block + size)

    def _absorb(self, left: int, right: int) -> None:
        self._size[left] += self._size.pop(right)
        del self._left[right]
        if self._last == right:
            self._last = left
        else:
            self._left[left + self._size[left]] = left

    def _list(self, block: int) -> None:
        key = _class_of(self._size[block])
        self._lists.setdefault(key, {})[block] = None
        self._filled |= 1 << key
        self._idle.add(block)

    def _unlist(self, block: int) -> None:
        key = _class_of(self._size[block])
        del self._lists[key][block]
        if not self._lists[key]:
            self._filled &= ~(1 << key)
        self._idle.remove(block)

    def _find(self, size: int) -> int:
        """Find a block: in a class whose blocks are all large enough, else in the class that may have one; or -1."""
        larger = self._filled >> _class_for(size)
        if larger:
            return next(reversed(self._lists[_class_for(size) + (larger & -larger).bit_length() - 1]))
        candidates = self._lists.get(_class_of(size), {})
        for tries, block in enumerate(reversed(candidates)):
            if tries == _TRIES:
                break
            if self._size[block] >= size:
                return block
        return -1


def _class_of(size: int) -> int:
    if size < _STEPS:
        return size
    log = size.bit_length() - 1
    return (log - 4) * _STEPS + (size >> (log - 5)) - _STEPS


def _class_for(size: int) -> int:
    """Return the smallest class all of whose blocks have at least ``size`` grains."""
    if size >= _STEPS:
        size += (1 << (size.bit_length() - 6)) - 1
    return _class_of(size)
