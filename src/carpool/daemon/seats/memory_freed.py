"""Device memory may have become free: the one thing inside the daemon that several parts wait for."""

from __future__ import annotations

from collections.abc import Callable


class MemoryFreed:
    """Told by seats, secondary processes and copies; heard by the grants that wait, and by the files of weights."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` from now on, after those that listen already."""
        self._listeners.append(listener)

    def tell(self) -> None:
        """A process has left its device, or a copy for one that is gone has ended."""
        for listener in self._listeners:
            listener()
