"""Work of the driver beside the loop, in a thread that nobody waits for at the end of the daemon."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from carpool.devices.base import DeviceError

log = logging.getLogger(__name__)
T = TypeVar("T")


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

    threading.Thread(target=run, name=name, daemon=True).start()
