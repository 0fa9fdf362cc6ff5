"""Waking futexes in shared memory from Python; the daemon never waits on one."""

from __future__ import annotations

import ctypes
import os
import platform

_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAKE = 1
_EVERYBODY = 2**31 - 1

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_int]


def wake(address: int) -> int:
    """Wake all waiters on the 32-bit word at ``address``, and return how many there were.  Raises OSError."""
    woken = _syscall(_number(), address, _FUTEX_WAKE, _EVERYBODY, None, None, 0)
    if woken < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(woken)


def _number() -> int:
    try:
        return _SYS_FUTEX[platform.machine()]
    except KeyError:
        raise RuntimeError(f"Carpool does not know this machine: {platform.machine()}") from None
