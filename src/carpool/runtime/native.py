"""libcarpool, called through ctypes.

The library is preloaded by the launcher, never opened from here; in a process without it `preloaded` returns None.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ATTACHED = 0
REFUSED = 1
#: Another process of the job is attached; this process asks again when it is about to use its device.
LATER = 2


def library_path() -> Path:
    """Return the path at which the build puts ``libcarpool.so``; the file is missing until ``make native`` has run."""
    return Path(__file__).resolve().parent.parent / "_native" / "libcarpool.so"


class Counters(ctypes.Structure):
    """``struct cp_counters``: sizes in bytes; all other fields count since the process attached."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "p_live",
            "p_peak",
            "e_live",
            "e_peak",
            "iterations",
            "traps",
            "turns",
            "syscalls",
            "residue",
            "residue_total",
            "forced",
            "early",
            "promoted",
            "allocs",
            "frees",
        )
    ]

    def as_dict(self) -> dict[str, int]:
        """Return the counters by their names."""
        return {name: getattr(self, name) for name, *_ in self._fields_}


class Native(NamedTuple):
    """The functions of the preloaded libcarpool.

    Only `attach` waits (for the daemon) and lets other Python threads run meanwhile.  The others return at once, so
    they keep the interpreter's lock: releasing it would cost more than the call.

    Where `step_end` or `iteration_end` returns 1 a turn ends, and the same thread must call `live_blocks` next.
    """

    attach: Callable[[int], int]
    join: Callable[[bytes, bytes, int], int]
    begin_iterations: Callable[[], None]
    step_begin: Callable[[int, int], None]
    step_end: Callable[[int, int], int]
    iteration_begin: Callable[[], None]
    iteration_end: Callable[[], int]
    live_blocks: Callable[[int | None, int | None, int], None]
    pool_scope: Callable[[int], None]
    watch_forks: Callable[[], None]
    visible_devices: Callable[[], bytes | None]
    progress: Callable[[int, int], None]
    out_of_memory: Callable[[int], None]
    fill_counters: Callable[[object], None]
    last_error: Callable[[], bytes]

    def error(self) -> str:
        """Return why the last call of libcarpool failed, as a text for users."""
        return self.last_error().decode(errors="replace")

    def counters(self) -> dict[str, int]:
        """Return the counters of this process by their names, sizes in bytes."""
        counters = Counters()
        self.fill_counters(ctypes.byref(counters))
        return counters.as_dict()


def _function(library: ctypes.CDLL, name: str, result: object, *arguments: object) -> Callable[..., Any]:
    function: Any = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    typed: Callable[..., Any] = function
    return typed


@functools.cache
def preloaded() -> Native | None:
    """Return the libcarpool of this process, or None if it is not preloaded."""
    if "CARPOOL_JOB_FD" not in os.environ and "CARPOOL_JOIN" not in os.environ:
        return None  # avoids searching the libraries of a plain process
    waiting, quick = ctypes.CDLL(None), ctypes.PyDLL(None)
    if not hasattr(quick, "cp_attach"):
        return None
    integer, number = ctypes.c_int, ctypes.c_uint64
    return Native(
        attach=_function(waiting, "cp_attach", integer, integer),
        join=_function(quick, "cp_join", integer, ctypes.c_char_p, ctypes.c_char_p, integer),
        begin_iterations=_function(quick, "cp_begin_iterations", None),
        step_begin=_function(quick, "cp_step_begin", None, integer, integer),
        step_end=_function(quick, "cp_step_end", integer),  # the cheaper way: its arguments have no types
        iteration_begin=_function(quick, "cp_iteration_begin", None),
        iteration_end=_function(quick, "cp_iteration_end", integer),
        live_blocks=_function(quick, "cp_live_blocks", None, ctypes.c_void_p, ctypes.c_void_p, number),
        pool_scope=_function(quick, "cp_pool_scope", None, integer),
        watch_forks=_function(quick, "cp_watch_forks", None),
        visible_devices=_function(quick, "cp_visible_devices", ctypes.c_char_p),
        progress=_function(quick, "cp_progress", None, number, number),
        out_of_memory=_function(quick, "cp_out_of_memory", None, ctypes.c_uint32),
        fill_counters=_function(quick, "cp_counters", None, ctypes.POINTER(Counters)),
        last_error=_function(quick, "cp_error", ctypes.c_char_p),
    )
