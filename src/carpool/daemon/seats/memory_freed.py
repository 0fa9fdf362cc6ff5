"""A notification inside the daemon that device memory may have become free, for which several parts wait."""

from __future__ import annotations

from collections.abc import Callable


class MemoryFreed:
    """Notified by seats, secondary processes and copies; listened to by waiting grants and by the files of weights."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` from now on, after those that listen already."""
        self._listeners.append(listener)

    def tell(self) -> None:
        """Notify the listeners: a process has left its device, or a copy for a job that is gone has ended."""
        for listener in self._listeners:
            listener()
