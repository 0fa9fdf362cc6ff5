"""How fast bytes move between the device and host memory of different kinds: what offloading rests on."""

from __future__ import annotations

import ctypes
import mmap
import os
import statistics
import time

from carpool.devices.cuda import driver
from carpool.devices.cuda.memory import Gpu
from tests.gpu.registry import Figures, measure

MIB = 1 << 20
SIZE = 256 * MIB
RUNS = 7


@measure(
    "copies of 256 MiB, GB/s: pinned by the driver, a memfd that was registered, pageable; and what registering takes"
)
def copy_rates() -> Figures:
    driver.start()
    gpu = Gpu(0)
    size = min(SIZE, gpu.memory // 4)
    fd = gpu.create(size)
    extent = gpu.open(fd, size)
    os.close(fd)
    figures: Figures = {}
    pinned = int(driver.call("cuMemHostAlloc", size, 0))
    figures |= _rates(gpu, extent.address, pinned, size, "pinned")
    driver.call("cuMemFreeHost", pinned)
    memory, address = _shared(size)
    figures |= _rates(gpu, extent.address, address, size, "pageable")
    begin = time.perf_counter()
    gpu.pin(address, size)
    figures["registering, s per GiB"] = (time.perf_counter() - begin) / size * (1 << 30)
    figures |= _rates(gpu, extent.address, address, size, "registered memfd")
    gpu.unpin(address)
    memory.close()
    return figures


def _shared(size: int) -> tuple[mmap.mmap, int]:
    """A memfd, mapped and touched."""
    fd = os.memfd_create("copies")
    os.ftruncate(fd, size)
    memory = mmap.mmap(fd, size)
    os.close(fd)
    view = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(view)
    del view
    ctypes.memset(address, 1, size)
    return memory, address


def _rates(gpu: Gpu, device: int, host: int, size: int, name: str) -> Figures:
    out = statistics.median(_seconds(gpu, device, host, size, outwards=True) for _ in range(RUNS))
    back = statistics.median(_seconds(gpu, device, host, size, outwards=False) for _ in range(RUNS))
    return {f"{name}, out": size / out / 1e9, f"{name}, in": size / back / 1e9}


def _seconds(gpu: Gpu, device: int, host: int, size: int, outwards: bool) -> float:
    begin = time.perf_counter()
    (gpu.copy_out if outwards else gpu.copy_in)(device, host, size)
    gpu.wait()
    return time.perf_counter() - begin
