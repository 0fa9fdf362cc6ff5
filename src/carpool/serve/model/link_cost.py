"""The fixed cost and the rate of a transfer to the device, measured with the transfer that models use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from carpool.devices import memfd
from carpool.serve.model.native_groups import KEY_BYTES, Groups
from carpool.serve.plan.grouping import LinkCost
from carpool.serve.plan.manifest import lay_out

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
