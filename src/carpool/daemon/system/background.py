"""Work that must not hold up the daemon's loop: in threads, for the daemon's lifetime, or in slices."""

from __future__ import annotations

import _thread
import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter
from typing import TypeVar

from carpool.daemon.system.errors import is_refusal, refusal_text
from carpool.devices.base import DeviceError

log = logging.getLogger(__name__)
T = TypeVar("T")
AGAIN_S = 1.0
#: Number of threads for work that the loop waits for (`asyncio.to_thread`).
THREADS = 8
R = TypeVar("R")
#: How long other work may have to wait.
SLICE_S = 0.001


def start_threads() -> None:
    """Start the threads of `asyncio.to_thread` all at once: starting one later would hang a loop that has no memory.

    Raises RuntimeError if not all of them can be started.
    """
    executor, all_there = ThreadPoolExecutor(THREADS, "carpool"), threading.Barrier(THREADS + 1)
    try:
        for _ in range(THREADS):
            executor.submit(all_there.wait)
    except BaseException:
        all_there.abort()  # threads that have started wait for no others
        raise
    all_there.wait()
    asyncio.get_running_loop().set_default_executor(executor)


def in_background(name: str, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
    """Do ``work`` in a thread; call ``done`` on the loop with the result, or with the exception that was raised."""
    loop = asyncio.get_running_loop()

    def run() -> None:
        try:
            result: T | Exception = work()
        except (DeviceError, OSError, MemoryError) as error:
            result = error
        except Exception as error:
            log.exception("%s: unexpected error", name)
            result = error
        with suppress(RuntimeError):  # the loop is closed: the daemon has ended meanwhile
            loop.call_soon_threadsafe(done, result)

    try:
        _thread.start_new_thread(run, ())  # `threading.Thread` waits for the new thread, for ever if it has no memory
    except (RuntimeError, MemoryError) as error:  # no more threads
        loop.call_soon(done, error)


async def go_on(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run permanent work of the daemon, and begin it again when it has failed."""
    while True:
        try:
            return await work()
        except Exception as error:
            text = "%s is begun again in %.0f s: %s"
            log.error(text, name, AGAIN_S, refusal_text(error), exc_info=None if is_refusal(error) else error)
            await asyncio.sleep(AGAIN_S)


class Slice:
    """A time slice; reports when it is over, and can begin anew."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin a slice now."""
        self._end_s = perf_counter() + SLICE_S

    @property
    def over(self) -> bool:
        """Whether the slice has lasted long enough."""
        return perf_counter() >= self._end_s


async def others_go_on() -> None:
    """Let the loop do other work that is due."""
    await asyncio.sleep(0)


async def in_slices(
    things: Iterable[T], work: Callable[[T], R], between: Callable[[], Awaitable[None]] = others_go_on
) -> list[R]:
    """Return the results, in order.  The daemon's state may change between two slices, in ``between``."""
    done, present = list[R](), Slice()
    for thing in things:
        done.append(work(thing))
        if present.over:
            await between()
            present.begin()
    return done
