"""Stands in for PyTorch in scripts that only take memory, from PyTorch's own allocator for the CPU.

The real one takes more than a second to import; its allocator is in a small library of its own.  What Carpool asks
PyTorch for besides is in `tests/cuda/stand_in`.  `make test-all` has the real one everywhere.
"""

# ruff: noqa: PTH118, PTH120 - pathlib would cost a third of the start

from __future__ import annotations

import ctypes
import os
import runpy
import struct

_HOOKS = os.path.join(os.path.dirname(__file__), "..", "..", "cuda", "stand_in", "torch.py")
vars().update(runpy.run_path(_HOOKS, run_name="torch"))
_c10 = ctypes.CDLL(os.environ["STAND_IN_C10"])
_alloc, _free = _c10._ZN3c109alloc_cpuEm, _c10._ZN3c108free_cpuEPv
_alloc.restype, _alloc.argtypes, _free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]


class _Ones:
    """Of float32."""

    def __init__(self, count: int) -> None:
        values = struct.pack("f", 1.0) * count
        self._count, self._address = count, _alloc(len(values))
        ctypes.memmove(self._address, values, len(values))

    def __del__(self) -> None:
        _free(self._address)

    def sum(self) -> float:
        return sum((ctypes.c_float * self._count).from_address(self._address))


def ones(count: int) -> _Ones:
    return _Ones(count)
