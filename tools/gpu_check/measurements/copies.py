"""How fast bytes move between the device and host memory of different kinds: what offloading rests on."""

from __future__ import annotations

import ctypes
import mmap
import os
import statistics
import time

from carpool.devices.cuda import driver
from carpool.devices.cuda.memory import DriverDevice, Mapped
from tools.gpu_check.registry import Figures, measure

MIB = 1 << 20
SIZE = 256 * MIB
RUNS = 7


@measure(
    "copies of 256 MiB, GB/s: pinned by the driver, a memfd that was registered, pageable; and what registering takes"
)
def copy_rates() -> Figures:
    driver.start()
    gpu = DriverDevice(0)
    size = min(SIZE, gpu.memory // 4)
    out, back = pinned_rates(gpu, size)
    figures: Figures = {"pinned, out": out / 1e9, "pinned, in": back / 1e9}
    extent = mapped(gpu, size)
    memory, address = shared(size)
    figures |= _rates(gpu, extent.address, address, size, "pageable")
    begin = time.perf_counter()
    gpu.pin(address, size)
    figures["registering, s per GiB"] = (time.perf_counter() - begin) / size * (1 << 30)
    figures |= _rates(gpu, extent.address, address, size, "registered memfd")
    gpu.unpin(address)
    begin = time.perf_counter()
    gpu.pin(address, size)
    figures["registering again, s per GiB"] = (time.perf_counter() - begin) / size * (1 << 30)
    gpu.unpin(address)
    memory.close()
    return figures


def pinned_rates(gpu: DriverDevice, size: int) -> tuple[float, float]:
    """Bytes per second from the device to memory that the driver has pinned, and back; leaves nothing behind."""
    extent = mapped(gpu, size)
    pinned = int(driver.call("cuMemHostAlloc", size, 0))
    rates = _medians(gpu, extent.address, pinned, size)
    driver.call("cuMemFreeHost", pinned)
    gpu.unmap(extent)
    return rates


def mapped(gpu: DriverDevice, size: int) -> Mapped:
    fd = gpu.create(size)
    try:
        return gpu.open(fd, size)
    finally:
        os.close(fd)


def shared(size: int) -> tuple[mmap.mmap, int]:
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


def _rates(gpu: DriverDevice, device: int, host: int, size: int, name: str) -> Figures:
    out, back = _medians(gpu, device, host, size)
    return {f"{name}, out": out / 1e9, f"{name}, in": back / 1e9}


def _medians(gpu: DriverDevice, device: int, host: int, size: int) -> tuple[float, float]:
    out = statistics.median(_seconds(gpu, device, host, size, outwards=True) for _ in range(RUNS))
    back = statistics.median(_seconds(gpu, device, host, size, outwards=False) for _ in range(RUNS))
    return size / out, size / back


def _seconds(gpu: DriverDevice, device: int, host: int, size: int, outwards: bool) -> float:
    begin = time.perf_counter()
    (gpu.copy_out if outwards else gpu.copy_in)(device, host, size)
    gpu.wait()
    return time.perf_counter() - begin
