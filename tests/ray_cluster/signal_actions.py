"""What a process does with signals, as C sees it: Ray changes that in its driver, and leaves the default behind."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager

#: For which Ray's driver has handlers of its own.
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTERM)
LARGEST = 256  # bytes of a struct sigaction, and more


@contextmanager
def kept_signal_actions() -> Iterator[None]:
    """Faults mean afterwards what they meant before, to faulthandler and to libcarpool's trap in this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = {number: ctypes.create_string_buffer(LARGEST) for number in FAULTS}
    for number, action in before.items():
        libc.sigaction(number, None, action)
    yield
    for number, action in before.items():
        libc.sigaction(number, action, None)
