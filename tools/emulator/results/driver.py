"""What the emulated driver tells of the calling thread, and the few of its calls that are made here.

Calls keep the interpreter's lock, but for those that wait.
"""

from __future__ import annotations

import ctypes

LIBRARY = "libcuda.so.1"


class DriverCallError(RuntimeError):
    """A call of the driver has failed."""


class EmulatedDriver:
    """``waiting`` and ``counting`` are two ways to the same library: without and with the interpreter's lock.

    Raises OSError if it cannot be loaded, AttributeError if it is not the emulated one.
    """

    def __init__(self) -> None:
        counting = ctypes.PyDLL(LIBRARY)
        self._waiting = ctypes.CDLL(LIBRARY)
        self.null_count = counting.emulator_null_count
        self.null_count.restype = ctypes.c_uint64
        self.null_count.argtypes = []
        self._operator = counting.emulator_operator
        self._operator.restype = ctypes.c_void_p
        self._operator.argtypes = [ctypes.c_void_p]

    def enter(self, operator: int | None) -> int | None:
        """What the thread computes from now on: the address of a name that stays.  Returns the previous one."""
        previous: int | None = self._operator(operator)
        return previous

    def allocate_word(self) -> ctypes.c_uint32:
        """A word of host memory that streams can wait for; for as long as the process lives."""
        address = ctypes.c_void_p()
        self._check("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(4), ctypes.c_uint(0))
        return ctypes.c_uint32.from_address(address.value or 0)

    def wait_in_stream(self, stream: int, word: ctypes.c_uint32, value: int) -> None:
        """What is submitted to the stream from now on comes after the word has at least this value."""
        word_address = ctypes.c_void_p(ctypes.addressof(word))
        self._check(
            "cuStreamWaitValue32_v2", ctypes.c_void_p(stream), word_address, ctypes.c_uint32(value), ctypes.c_uint(0)
        )

    def synchronize(self, stream: int) -> None:
        self._check("cuStreamSynchronize", ctypes.c_void_p(stream))

    def _check(self, name: str, *arguments: object) -> None:
        """Raises DriverCallError."""
        status = getattr(self._waiting, name)(*arguments)
        if status:
            raise DriverCallError(f"{name} of the emulated driver returned {status}")
