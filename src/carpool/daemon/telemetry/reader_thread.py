"""A thread that reads telemetry."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence

from carpool.daemon.system.errors import is_refusal
from carpool.telemetry.readers import Found, Reader, Roots, Target
from carpool.telemetry.samples import Unmeasurable

log = logging.getLogger(__name__)
MISTAKE = "internal error in the telemetry: see daemon.log"


class ReaderThread:
    """A thread with a reader.  The thread gets nothing new to do before it has finished its present task."""

    def __init__(self, name: str, make: Callable[[], Reader], deliver: Callable[[Found], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._make = make
        self._deliver = deliver
        self._asked: queue.SimpleQueue[tuple[Sequence[Target], Roots] | None] = queue.SimpleQueue()
        self.busy = False  # whether the thread has not finished its last task yet
        self._stopped = False
        # A daemon thread, so that the exiting interpreter does not wait: a call of a broken driver may never return.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def ask(self, targets: Sequence[Target], roots: Roots) -> bool:
        """Ask the thread to read the targets; return False if it is still busy."""
        if self.busy:
            return False
        self.busy = True
        self._asked.put((targets, roots))
        return True

    def stop(self) -> None:
        """Let the thread end after its present task, whose result is dropped."""
        self._stopped = True
        self._asked.put(None)

    def _work(self) -> None:
        reader: Reader | None = None
        while (asked := self._asked.get()) is not None:
            try:
                reader = reader or self._make()
                found = reader.read(*asked)
            except Exception as error:
                log.error("the telemetry failed: %s", error, exc_info=None if is_refusal(error) else error)
                found = {target.device: Unmeasurable(MISTAKE) for target in asked[0]}
            try:
                self._loop.call_soon_threadsafe(self._done, found)
            except RuntimeError:  # the loop is closed: the daemon has ended meanwhile
                break
        if reader is not None:
            reader.close()

    def _done(self, found: Found) -> None:
        self.busy = False
        if not self._stopped:
            self._deliver(found)
