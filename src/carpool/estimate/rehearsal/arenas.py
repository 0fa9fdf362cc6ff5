"""A job's two arenas while it is rehearsed: which blocks would lie in which, and how far both would reach.

The same rules as in ``native/job/malloc_hooks.c`` and ``native/job/attach.c``: what is made before the first forward
pass and by an optimizer's first step is persistent, the rest ephemeral, and small tensors stay in the ordinary heap.
"""

from __future__ import annotations

from carpool.estimate.rehearsal.allocator_mirror import AllocatorMirror

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
        """A block of ``size_bytes`` has been made; `dropped` finds the block by the caller's ``number``."""
        if size_bytes < LEAST:
            return
        extent = self._persistent if self.to_persistent else self._ephemeral
        self._blocks[number] = extent, extent.allocate(size_bytes)
        self.live_peak = max(self.live_peak, self._ephemeral.live)

    def dropped(self, number: int) -> None:
        """A block has been freed.  Blocks that were never in an arena are ignored."""
        extent, block = self._blocks.pop(number, (None, 0))
        if extent is not None:
            extent.free(block)

    def watch_peak(self) -> None:
        self.live_peak = self._ephemeral.live

    @property
    def live(self) -> int:
        """Ephemeral bytes at present."""
        return self._ephemeral.live

    @property
    def persistent(self) -> int:
        """Bytes that persistent memory has reached, whole pages."""
        return -(-self._persistent.high // PAGE) * PAGE

    @property
    def ephemeral(self) -> int:
        """Bytes that a lane must have for it."""
        return self._ephemeral.high
