"""A job's two arenas in a rehearsal: which blocks would lie in which arena, and how far both would reach.

The rules are those of ``src/native/job/malloc_hooks.c`` and ``src/native/job/attach.c``: blocks made before the first
forward pass and by an optimizer's first step are persistent, the rest ephemeral, and small tensors stay in the ordinary
heap.

The height of an arena: a mirror of libcarpool's block allocator (``src/native/arena/pool.c``) that moves no bytes.

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
        """Bytes up to the highest end that a block has ever had."""
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
        """Free a block, by its position."""
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


LEAST = 1024  # bytes; smaller tensors are not in arenas
PAGE = 4096


class Arenas:
    """The two arenas of one rehearsed job; sizes are bytes.

    A block goes to the arena that `to_persistent` names at the moment when the block is made.
    """

    def __init__(self) -> None:
        self.to_persistent = True  # where the next block goes
        self._persistent, self._ephemeral = AllocatorMirror(), AllocatorMirror()
        self._blocks: dict[int, tuple[AllocatorMirror, int]] = {}
        self.live_peak = 0  # of ephemeral bytes, since `watch_peak`

    def made(self, number: int, size_bytes: int) -> None:
        """Note that a block of ``size_bytes`` was made; `dropped` finds the block by the caller's ``number``."""
        if size_bytes < LEAST:
            return
        extent = self._persistent if self.to_persistent else self._ephemeral
        self._blocks[number] = extent, extent.allocate(size_bytes)
        self.live_peak = max(self.live_peak, self._ephemeral.live)

    def dropped(self, number: int) -> None:
        """Note that a block was freed; a block that was never in an arena is ignored."""
        extent, block = self._blocks.pop(number, (None, 0))
        if extent is not None:
            extent.free(block)

    def watch_peak(self) -> None:
        """Begin to note the peak of ephemeral bytes anew."""
        self.live_peak = self._ephemeral.live

    @property
    def live(self) -> int:
        """Ephemeral bytes that are alive at present."""
        return self._ephemeral.live

    @property
    def persistent(self) -> int:
        """The most bytes that the persistent arena has reached, in whole pages."""
        return -(-self._persistent.high // PAGE) * PAGE

    @property
    def ephemeral(self) -> int:
        """The bytes that a lane must have for the job."""
        return self._ephemeral.high
