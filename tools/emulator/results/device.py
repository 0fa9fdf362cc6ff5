"""The emulated device as operators see it: one of them at a time, the stream that is kept busy, graphs that record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from .busy_stream import BusyStreams
from .driver import EmulatedDriver
from .generators import Drawing

#: A computation that a graph does at each replay, with where it draws random numbers.
Recorded = Callable[[Drawing], None]


@dataclass
class Frame:
    """One call of a CUDA kernel.  ``own``: launches that computed nothing and that no operator inside has redone."""

    outermost: bool
    own: int = 0
    redone: int = 0
    touched: set[int] = field(default_factory=set)
    """Storages that operators inside have written."""


class EmulatedDevice:
    """Operators of all threads come one after another.

    While one keeps a stream busy, no other may wait for that stream with the interpreter's lock in its hand.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._driver = EmulatedDriver()
        self._streams = BusyStreams(self._driver)
        self._frames: list[Frame] = []  # under the lock, so all of one thread
        self.recording: list[Recorded] | None = None

    @contextmanager
    def frame(self, operator: int | None) -> Iterator[Frame]:
        """Of an operator, by the address of its name.  Its numbers are there when the block is left."""
        frame, before = Frame(outermost=not self._frames), self._driver.null_count()
        self._frames.append(frame)
        previous = self._driver.enter(operator)
        try:
            yield frame
        finally:
            self._driver.enter(previous)
            self._frames.pop()
            frame.own = self._driver.null_count() - before - frame.redone

    def redone(self, frame: Frame, own: bool, written: set[int]) -> None:
        """What the operator's ``own`` launches should have done has been done, or is left to the operator around it.

        ``written``: the storages that it has written.
        """
        if self._frames:
            self._frames[-1].redone += frame.redone + (frame.own if own else 0)
            self._frames[-1].touched |= written

    def capturing(self) -> bool:
        return bool(torch._C._cuda_isCurrentStreamCapturing())

    def do(self, device: int, work: Callable[[], None]) -> None:
        """In the place of the next kernel of the device's current stream, which ends with it.

        The default stream has no handle of its own: it is that of the device that the thread uses at the moment.
        """
        before = torch._C._cuda_exchangeDevice(device)
        try:
            with self._streams.busy(device):
                work()
        finally:
            torch._C._cuda_maybeExchangeDevice(before)
