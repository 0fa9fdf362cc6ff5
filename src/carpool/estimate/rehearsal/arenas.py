"""A job's two arenas in a rehearsal: which blocks would lie in which arena, and how far both would reach.

The rules are those of ``native/job/malloc_hooks.c`` and ``native/job/attach.c``: blocks made before the first forward
pass and by an optimizer's first step are persistent, the rest ephemeral, and small tensors stay in the ordinary heap.
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
