"""Noticing the end of processes that are not our children, through pidfds."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable


class PidWatch:
    """Calls back once when a process has ended (at once, if it has ended already)."""

    def __init__(self, pid: int, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._fd: int | None = None
        loop = asyncio.get_running_loop()
        try:
            self._fd = os.pidfd_open(pid)
        except (OSError, ValueError, OverflowError):  # gone, or never a pid: jobs say it themselves
            self._soon = loop.call_soon(self._tell)
            return
        loop.add_reader(self._fd, self._tell)

    @property
    def over(self) -> bool:
        """Whether the process has ended, even if the callback has not run yet."""
        return self._fd is None or bool(select.select([self._fd], [], [], 0)[0])

    def stop(self) -> None:
        """No call from now on."""
        self._ended = _nothing
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _tell(self) -> None:
        ended = self._ended
        self.stop()
        ended()


def _nothing() -> None:
    """What a stopped watch calls."""
