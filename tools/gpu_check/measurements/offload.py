"""Offload and restore of jobs' memory, against a plain copy between the device and pinned memory."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import closing

from carpool.devices.base import BankId
from carpool.devices.cuda import driver
from carpool.devices.cuda.agent_link import AgentLink
from carpool.devices.cuda.device import CudaDevice
from carpool.devices.cuda.memory import DriverDevice
from tools.gpu_check.checks.jobs import copies_side_by_side
from tools.gpu_check.daemon import Daemon, daemon
from tools.gpu_check.measurements.copies import pinned_rates
from tools.gpu_check.registry import Figures, measure, require

MIB = 1 << 20
JOBS, ITERATIONS, ROUNDS = 3, "40", 2
#: A job has twice this, so that two fit and three do not.
PART_MIB, SMALL_MIB = 1024, 32
QUANTUM_US = 50_000
#: Jobs with a store each.
OWNER, FIRST, AHEAD, FILLING = 1000, 1, 2, 3
LOOK_S = 0.001


@measure("offload and restore of jobs' memory, bytes per second / plain copy of as much to and from pinned memory")
def offload_rate() -> Figures:
    """The copies' own time, as the jobs' accounts have it; the first moves are in it (apart: `first_move`)."""
    driver.start()
    gpu = DriverDevice(0)
    part = _part(gpu)
    rates, out, back = [], [], []
    with daemon(f"{part * 5}MiB", quantum_us=QUANTUM_US) as shared:
        for _ in range(ROUNDS):
            plain_out, plain_in = pinned_rates(gpu, part * MIB)
            moved_out, moved_in = moved_rates(shared, part)
            rates.append(2 / (1 / moved_out + 1 / moved_in) / (2 / (1 / plain_out + 1 / plain_in)))
            out.append(moved_out)
            back.append(moved_in)
    return {
        "ratio, median": statistics.median(rates),
        "ratio, spread": max(rates) - min(rates),
        "out, GB/s": statistics.median(out) / 1e9,
        "in, GB/s": statistics.median(back) / 1e9,
    }


@measure("a store's copies from the device: the first, the first when it was pinned ahead, a later one / plain copy")
def first_move() -> Figures:
    driver.start()
    gpu = DriverDevice(0)
    size = 2 * _part(gpu) * MIB
    plain, _ = pinned_rates(gpu, size)
    with closing(CudaDevice("cuda0", gpu.memory, AgentLink(0))) as device:
        bank = _filled_bank(device, size)
        first, later = (_rate(size, device.copy_out(bank, [(0, size)], FIRST)) for _ in range(2))
        pinning = _rate(size, lambda: _pin_ahead(device, size))
        ahead = _rate(size, device.copy_out(bank, [(0, size)], AHEAD))
    return {
        "first / plain": first / plain,
        "pinned ahead / plain": ahead / plain,
        "later / plain": later / plain,
        "pinning ahead, s per GiB": (1 << 30) / pinning,
    }


def _part(gpu: DriverDevice) -> int:
    """In MiB."""
    return PART_MIB if gpu.memory > 16 * PART_MIB * MIB else SMALL_MIB


def _filled_bank(device: CudaDevice, size: int) -> BankId:
    """A bank without blocks of zeros, which are not copied."""
    bank = device.take_bank(OWNER, 0, None)
    device.grow_bank(bank, size)
    for place in range(0, size, MIB):
        os.pwrite(device.store_fd(FILLING), b"\x5a" * MIB, place)
    device.copy_in(bank, [(0, size)], FILLING)()
    device.drop_store(FILLING)
    return bank


def _pin_ahead(device: CudaDevice, size: int) -> None:
    device.pin_ahead(AHEAD, size)
    while device.stored_bytes() < 2 * size:
        time.sleep(LOOK_S)


def _rate(size: int, work: Callable[[], None]) -> float:
    """Bytes per second."""
    begin = time.perf_counter()
    work()
    return size / (time.perf_counter() - begin)


def moved_rates(shared: Daemon, part: int) -> tuple[float, float]:
    """Bytes per second to the host and back, of jobs that do not fit together."""
    jobs = copies_side_by_side(shared, JOBS, str(part), ITERATIONS)
    moved = [shared.client.job(job).moved for job in jobs]
    out_us, in_us = sum(each.out_us for each in moved), sum(each.in_us for each in moved)
    require(out_us > 0 and in_us > 0, "nothing was moved")
    out, back = sum(each.out_bytes for each in moved), sum(each.in_bytes for each in moved)
    return out / out_us * 1e6, back / in_us * 1e6
