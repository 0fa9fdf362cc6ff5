"""Noticing the end of processes that are not our children, through pidfds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from carpool.daemon.system.errors import may_pass
from carpool.protocol.packets import readable

AGAIN_S = 0.2


class PidWatch:
    """Calls back once when a process has ended (at once, if it has ended already)."""

    def __init__(self, pid: int, ended: Callable[[], None], fd: int | None = None) -> None:
        """``fd``: the process's pidfd, which the watch closes; if None, the watch opens one."""
        self._pid = pid
        self._ended = ended
        self._fd = fd
        self._gone = False
        self._soon: asyncio.Handle | None = None
        self._open()

    def _open(self) -> None:
        """Open the pidfd, or try again later without descriptors: a process that cannot be watched has not ended."""
        loop = asyncio.get_running_loop()
        try:
            self._fd = os.pidfd_open(self._pid) if self._fd is None else self._fd
        except (OSError, ValueError, OverflowError) as error:  # gone, or never a pid: the number may come from a job
            if isinstance(error, OSError) and may_pass(error):
                self._soon = loop.call_later(AGAIN_S, self._open)
            else:
                self._gone, self._soon = True, loop.call_soon(self._tell)
            return
        loop.add_reader(self._fd, self._tell)

    @property
    def over(self) -> bool:
        """Whether the process has ended, even if the callback has not run yet."""
        return self._gone or (self._fd is not None and readable(self._fd))

    def stop(self) -> None:
        """Stop watching; the callback is not called afterwards."""
        self._ended = _nothing
        if self._soon is not None:
            self._soon.cancel()
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
            self._gone = True

    def _tell(self) -> None:
        ended = self._ended
        self.stop()
        ended()


def _nothing() -> None:
    """Do nothing; a stopped watch calls this."""
