"""A stream that is kept busy while the CPU computes in the place of the device's kernels."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .driver import EmulatedDriver


class BusyStreams:
    """Each thread has a word of its own, whose value only increases."""

    def __init__(self, driver: EmulatedDriver) -> None:
        self._driver = driver
        self._mine = threading.local()

    @contextmanager
    def busy(self, device: int) -> Iterator[None]:
        """What was submitted to the current stream has been done, and nothing that is submitted later is.

        The wait goes to the driver as any other work does: under Carpool it needs a turn, which cannot end before it.
        """
        stream = torch._C._cuda_getCurrentRawStream(device)
        word = self._word()
        value = word.value + 1
        self._driver.synchronize(stream)
        self._driver.wait_in_stream(stream, word, value)
        try:
            yield
        finally:
            word.value = value

    def _word(self) -> ctypes.c_uint32:
        if not hasattr(self._mine, "word"):
            self._mine.word = self._driver.allocate_word()
        word: ctypes.c_uint32 = self._mine.word
        return word
