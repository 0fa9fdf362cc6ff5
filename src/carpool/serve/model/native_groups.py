"""Weights that are copied to the device group by group (``src/native/weights/groups.h``), called through ctypes.

The parts for GPUs are not yet run on a GPU.

The fixed cost and the rate of a transfer to the device, measured with the transfer that models use.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from carpool.devices import memfd
from carpool.runtime.native import library_path
from carpool.serve.plan.grouping import LinkCost
from carpool.serve.plan.manifest import lay_out

KEY_BYTES = 32
_STOPPED = "no thread of this process is copying these weights"


class CopyStopped(Exception):
    """Copying was stopped before all groups were there; the next load continues with the rest."""


class Waits(NamedTuple):
    """Accesses of this process that had to wait for their group."""

    touches: int
    waited_us: int


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the preloaded libcarpool where there is one: there must not be two traps in a process."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "cp_groups_open"):
        library = ctypes.CDLL(str(library_path()), use_errno=True)
    pointer, integer, number = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32
    opening = (integer, integer, ctypes.POINTER(ctypes.c_uint64), number, ctypes.c_char_p)
    for name, result, arguments in (
        ("open", pointer, opening),
        ("open_on_device", pointer, (*opening, ctypes.c_uint64)),
        ("close", None, (pointer,)),
        ("address", pointer, (pointer,)),
        ("load", integer, (pointer,)),
        ("wait", integer, (pointer, number)),
        ("follow", integer, (pointer, number, pointer)),
        ("guard", None, (pointer,)),
        ("operation", None, (integer,)),
        ("stop", None, (pointer,)),
        ("drop", integer, (pointer,)),
        ("shut", None, (pointer,)),
        ("move", integer, (pointer, integer)),
        ("there", number, (pointer,)),
        ("waits", None, (pointer, *[ctypes.POINTER(ctypes.c_uint64)] * 2)),
    ):
        function = getattr(library, f"cp_groups_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def _check(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))


def _unmappable(error: int) -> OSError:
    return OSError(error, f"the weights cannot be mapped: {os.strerror(error)}")


class Groups:
    """The weights of one model in device memory, mapped into this process.

    ``device``: descriptor of the weights' memory; ``image``: of the copy in the host.  Group k lies in both from
    ``bounds[k]`` to ``bounds[k + 1]``, whole pages.  ``key`` (32 bytes) tells these weights from others that may have
    been there before.  Both descriptors stay the caller's.

    ``address``: where the weights lie on a GPU, in whose context the calling thread is; of ``device`` only the header
    is used then.  Accesses there do not wait by themselves: see `follow`.  None: a host device.  Raises OSError.
    """

    def __init__(self, device: int, image: int, bounds: Sequence[int], key: bytes, address: int | None = None) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        self.bounds = tuple(bounds)
        self.count = len(bounds) - 1
        given = device, image, (ctypes.c_uint64 * len(bounds))(*bounds), self.count, key
        self._handle: int | None
        if address is None:
            self._handle = _library().cp_groups_open(*given)
        else:
            self._handle = _library().cp_groups_open_on_device(*given, address)
        if not self._handle:
            raise _unmappable(ctypes.get_errno())
        self.address: int = _library().cp_groups_address(self._handle) if address is None else address

    def load(self) -> None:
        """Begin to copy missing groups; call it before every use, never during one.  Raises OSError."""
        _check(_library().cp_groups_load(self._handle))

    def wait(self, count: int | None = None) -> None:
        """Wait until the first ``count`` groups are there; None: all.  Raises CopyStopped."""
        if _library().cp_groups_wait(self._handle, self.count if count is None else count):
            raise CopyStopped(_STOPPED)

    def follow(self, count: int, stream: int) -> None:
        """Order work that is submitted to this stream of the GPU from now on after the first ``count`` groups.

        ``stream``: its handle in the driver.  Raises CopyStopped, and OSError if a copy failed.
        """
        error = _library().cp_groups_follow(self._handle, count, stream)
        if error == errno.ECANCELED:
            raise CopyStopped(_STOPPED)
        _check(error)

    def guard(self, on: bool) -> None:
        """Switch on or off that work of any thread outside an `operation` is submitted to the GPU after all groups."""
        _library().cp_groups_guard(self._handle if on else None)

    def operation(self, begins: bool) -> None:
        """Mark the begin or end of an operation: this thread submits its work after the groups it needs (`follow`)."""
        _library().cp_groups_operation(begins)

    def stop(self) -> None:
        """Stop copying and return when no group is being copied; accesses to missing ones wait for the next `load`."""
        _library().cp_groups_stop(self._handle)

    def drop(self) -> None:
        """Forget all groups; never while any process computes.  Raises OSError (EBUSY) while groups are copied."""
        _check(_library().cp_groups_drop(self._handle))

    def shut(self) -> None:
        """Close access after another process has dropped the weights; doing so now saves the next `load` the time."""
        _library().cp_groups_shut(self._handle)

    def move(self, device: int) -> None:
        """Use another file for dropped weights from now on; the address stays.

        Only on a host device, and never while any process computes.  Raises OSError.
        """
        error = _library().cp_groups_move(self._handle, device)
        if error:
            raise _unmappable(error)

    @property
    def there(self) -> int:
        """The number of groups that are on the device."""
        return int(_library().cp_groups_there(self._handle))

    @property
    def waits(self) -> Waits:
        """The accesses of this process that had to wait so far."""
        touches, waited = ctypes.c_uint64(), ctypes.c_uint64()
        _library().cp_groups_waits(self._handle, ctypes.byref(touches), ctypes.byref(waited))
        return Waits(touches.value, waited.value)

    def close(self) -> None:
        """Unmap the weights.  Tensors in these weights must be gone, or never be used again."""
        if self._handle:
            _library().cp_groups_close(self._handle)
            self._handle = None


#: Larger than the caches, so that the rate is that of memory.
_BYTES = 64 << 20
_MANY = 256
_RUNS = 5


def copy_us(link: LinkCost, groups: int, size: int) -> int:
    """Return the time that copying ``size`` bytes in ``groups`` groups takes, in microseconds."""
    return (groups * link.transfer_ns + size * 1_000_000_000 // link.rate) // 1000


def measure(size: int = _BYTES) -> LinkCost:
    """Measure the link, using twice ``size`` bytes.  The shortest of some runs counts: the others were disturbed.

    Raises DeviceError and OSError if there is no memory.
    """
    whole, parts = _shortest(size, 1), _shortest(size, _MANY)
    return LinkCost(max(0, (parts - whole) // (_MANY - 1)), size * 1_000_000_000 // whole)


def _shortest(size: int, count: int) -> int:
    """Return the least nanoseconds in which ``count`` groups of ``size`` bytes together are copied."""
    layout = lay_out([size // count] * count, [[k] for k in range(count)], [], tuple(range(1, count + 1)))
    with _scratch(layout.size) as image, _scratch(layout.size) as device:
        groups = Groups(device, image, layout.bounds, bytes(KEY_BYTES))
        try:
            return min(_once(groups) for _ in range(_RUNS))
        finally:
            groups.close()


def _once(groups: Groups) -> int:
    """Copy once; from the second time on into existing pages, as earlier weights leave them."""
    begin = time.perf_counter_ns()
    groups.load()
    groups.wait()
    spent = time.perf_counter_ns() - begin
    groups.stop()
    groups.drop()
    return spent


@contextmanager
def _scratch(size: int) -> Iterator[int]:
    fd = memfd.create("carpool-link", size, sealed=True)
    try:
        yield fd
    finally:
        os.close(fd)
