"""Work beside the daemon's loop: in a thread that nobody waits for at the end, or for as long as the daemon runs."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from carpool.daemon.system.errors import is_refusal
from carpool.devices.base import DeviceError

log = logging.getLogger(__name__)
T = TypeVar("T")
AGAIN_S = 1.0


def in_background(name: str, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
    """``done`` is called on the loop, with what ``work`` returns or the exception that it raises."""
    loop = asyncio.get_running_loop()

    def run() -> None:
        try:
            result: T | Exception = work()
        except (DeviceError, OSError) as error:
            result = error
        except Exception as error:
            log.exception("%s: this was not expected", name)
            result = error
        with suppress(RuntimeError):  # the loop is closed: the daemon has ended meanwhile
            loop.call_soon_threadsafe(done, result)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:  # no more threads
        loop.call_soon(done, error)


async def go_on(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """What the daemon does all the time is begun again when it has failed."""
    while True:
        try:
            return await work()
        except Exception as error:
            text = "%s is begun again in %.0f s: %s"
            log.error(text, name, AGAIN_S, error, exc_info=None if is_refusal(error) else error)
            await asyncio.sleep(AGAIN_S)
