"""What weights cost on a GPU: an extent as large as a model, an image that is registered, copies of it in groups."""

from __future__ import annotations

import ctypes
import mmap
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from carpool.devices.cuda import driver, memory
from carpool.devices.cuda.driver import DriverError, bindings, call
from carpool.devices.cuda.memory import DriverDevice
from tools.gpu_check.measurements.copies import mapped, shared
from tools.gpu_check.registry import Figures, measure

MIB = 1 << 20
SIZES_MIB = (64, 256, 1024)
GROUPS = (1, 16, 128)
RUNS = 5
CALLS = ("cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease")

Taken = defaultdict[str, list[float]]


@measure(
    "weights: extents by driver call; an image registered read-only; copies in groups with events; ms, median of 5"
)
def weights_extents() -> Figures:
    driver.start()
    gpu = DriverDevice(0)
    gpu.stream()
    figures: Figures = {}
    for size_mib in SIZES_MIB:
        size = size_mib * MIB
        if size * 2 <= gpu.memory:
            costs = _extents(gpu, size) | _copies(gpu, size)
            figures |= {f"{name}, {size_mib} MiB": cost for name, cost in costs.items()}
    return figures


def _extents(gpu: DriverDevice, size: int) -> Figures:
    """Made, cleared and mapped as the agent and a worker do."""
    with _timed_calls() as taken:
        for _ in range(RUNS):
            gpu.unmap(mapped(gpu, size))
    return {name: statistics.median(taken[name]) for name in CALLS}


@contextmanager
def _timed_calls() -> Iterator[Taken]:
    """Milliseconds of each of the driver's functions that the agent's code calls meanwhile."""
    taken: Taken = defaultdict(list)

    def timed(function: str, *arguments: object) -> object:
        begin = time.perf_counter()
        try:
            return call(function, *arguments)
        finally:
            taken[function].append(_ms_since(begin))

    with patch.object(memory, "call", timed):
        yield taken


def _copies(gpu: DriverDevice, size: int) -> Figures:
    """From a file of memory that is mapped read-only, as a model's image.  It stays pageable if that is refused."""
    pages, address = shared(size)
    _make_read_only(address, size)
    extent = mapped(gpu, size)
    taken: Taken = defaultdict(list)
    figures: Figures = {}
    pinned = False
    begin = time.perf_counter()
    try:
        call("cuMemHostRegister", address, size, bindings().CU_MEMHOSTREGISTER_READ_ONLY)
        pinned, figures["registering read-only"] = True, _ms_since(begin)
    except DriverError as error:
        figures["registering read-only refused, error"] = error.code
    for _ in range(RUNS):
        for groups in GROUPS:
            _copy(gpu, extent.address, address, size, groups, taken)
    if pinned:
        begin = time.perf_counter()
        gpu.unpin(address)
        figures["taking that back"] = _ms_since(begin)
    gpu.unmap(extent)
    pages.close()
    return figures | {name: statistics.median(each) for name, each in taken.items()}


def _make_read_only(address: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.PROT_READ):
        raise OSError(ctypes.get_errno(), "mprotect")


def _copy(gpu: DriverDevice, device: int, host: int, size: int, groups: int, taken: Taken) -> None:
    """All submitted at once, an event after each; then the events are waited for in order."""
    flags = bindings().CUevent_flags
    how = flags.CU_EVENT_DISABLE_TIMING | flags.CU_EVENT_BLOCKING_SYNC
    events = [call("cuEventCreate", how) for _ in range(groups)]
    part = size // groups
    begin = time.perf_counter()
    for place, event in enumerate(events):
        gpu.copy_in(device + place * part, host + place * part, part)
        call("cuEventRecord", event, gpu.stream())
    taken[f"submitting {groups} groups"].append(_ms_since(begin))
    for event in events:
        call("cuEventSynchronize", event)
    taken[f"copying {groups} groups"].append(_ms_since(begin))
    for event in events:
        call("cuEventDestroy", event)


def _ms_since(begin: float) -> float:
    return (time.perf_counter() - begin) * 1e3
