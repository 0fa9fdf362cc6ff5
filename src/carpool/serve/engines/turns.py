"""Turns of engines: the daemon hears which engines have requests, when that changes, and again while they have."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from carpool.core.model import ENGINE_LINGER_US
from carpool.protocol.unix_http import ApiError, ClientError

log = logging.getLogger(__name__)

#: The daemon believes a report for 30 s.
REPEAT_S = 10.0


class EngineTurns:
    """Reports on engines, one at a time: ``report`` is called in a thread of its own, and may raise ClientError."""

    def __init__(self, report: Callable[[int, bool], None], linger_s: float = ENGINE_LINGER_US / 1e6) -> None:
        self._report = report
        self._linger_s = linger_s
        self._wanted: dict[int, bool] = {}  # by job
        self._told: dict[int, tuple[bool, float]] = {}  # and when
        self._changed = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "turns")

    def set(self, job: int, busy: bool) -> None:
        """Note whether an engine has requests."""
        self._wanted[job] = busy
        if busy:
            self._changed.set()
        else:
            asyncio.get_running_loop().call_later(self._linger_s, self._changed.set)

    def forget(self, job: int) -> None:
        """Forget an engine that has ended."""
        self._wanted.pop(job, None)
        self._told.pop(job, None)

    async def watch(self, repeat_s: float = REPEAT_S) -> None:
        """Report for ever; that an engine has requests is repeated after ``repeat_s``."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(repeat_s / 2):
                    await self._changed.wait()
            self._changed.clear()
            for job, busy in [*self._wanted.items()]:
                if self._is_news(job, busy, repeat_s):
                    await self._tell(job, busy)

    def close(self) -> None:
        """End the thread; `watch` must have ended."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _is_news(self, job: int, busy: bool, repeat_s: float) -> bool:
        was_busy, at_s = self._told.get(job, (False, 0.0))
        return busy != was_busy or (busy and asyncio.get_running_loop().time() - at_s >= repeat_s / 2)

    async def _tell(self, job: int, busy: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._report, job, busy)
        except ApiError as error:  # the job has ended: nothing is left to report of it
            log.debug("job %d: %s", job, error)
        except ClientError as error:  # the next round tries again
            log.debug("job %d: %s", job, error)
            return
        if job in self._wanted:
            self._told[job] = (busy, loop.time())
