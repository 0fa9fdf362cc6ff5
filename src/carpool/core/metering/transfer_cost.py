"""The cost of moving memory between a device and the host store, as far as it has been measured."""

from __future__ import annotations

from carpool.core.model import MIB, Micros, Usage
from carpool.core.state.amounts import cost, needed, ready
from carpool.core.state.device import Device, TransferTotals
from carpool.core.state.job import Job, WaitState
from carpool.core.state.state import State

#: Before anything has been moved: 2 GB/s.
ASSUMED_BYTES_PER_US = 2000
#: No move counts as slower than 10 MB/s, or as larger than 16 TiB; smaller ones than 1 MiB tell nothing.
SLOWEST_BYTES_PER_US = 10
LARGEST = 1 << 44
#: From this share on moves and switches may cost as much as they like.
WHOLE_PPM = 1_000_000


def observe(moved: TransferTotals, before: Usage, after: Usage) -> None:
    """Learn speeds from a job's counters; with every move what was seen before counts half.

    The first move of a job is slow, because its part of the store has to be made; that should not be remembered for
    long.
    """
    out_bytes, out_us = _credible(after.out_bytes - before.out_bytes, after.out_us - before.out_us)
    if out_us:
        moved.out_bytes, moved.out_us = moved.out_bytes // 2 + out_bytes, moved.out_us // 2 + out_us
    in_bytes, in_us = _credible(after.in_bytes - before.in_bytes, after.in_us - before.in_us)
    if in_us:
        moved.in_bytes, moved.in_us = moved.in_bytes // 2 + in_bytes, moved.in_us // 2 + in_us


def _credible(size: int, us: Micros) -> tuple[int, Micros]:
    """Return bytes and time of a move as far as they are credible, else zeros.

    Jobs write these figures themselves, may be stopped while they move, or start from zero in a new process.
    """
    if not MIB <= size < LARGEST or us <= 0:
        return 0, 0
    return size, max(1, min(us, size // SLOWEST_BYTES_PER_US))


def offload_us(device: Device, size: int) -> Micros:
    """How long it takes to move ``size`` bytes to the host store."""
    moved = device.moved
    return size * moved.out_us // moved.out_bytes if moved.out_bytes else size // ASSUMED_BYTES_PER_US


def restore_us(device: Device, size: int) -> Micros:
    """How long it takes to move ``size`` bytes back to the device."""
    moved = device.moved
    return size * moved.in_us // moved.in_bytes if moved.in_bytes else size // ASSUMED_BYTES_PER_US


def there_and_back_us(device: Device, size: int) -> Micros:
    """How long it takes to move ``size`` bytes out and back again."""
    return offload_us(device, size) + restore_us(device, size)


def move_price(state: State, holder: Job, best: Job) -> Micros:
    """Return the time for what has to be moved if the turn goes from ``holder`` to ``best``; 0 if both fit together."""
    device = state.devices[best.device] if best.device is not None else None
    if device is None or (ready(best) and not best.pending):
        return 0
    if best.offload_asked:  # it is leaving just now
        return restore_us(device, best.reserved.persistent) + leaving_us(device, holder)
    restore = restore_us(device, best.carried(best.stored.persistent) if best.offloaded else 0)
    leaves = best.wait is not WaitState.MOVING and cost(state, best, needed(best)) > device.free
    return restore + (leaving_us(device, holder) if leaves else 0)


def leaving_us(device: Device, job: Job) -> Micros:
    """How long it takes to move all that a job keeps out of the device."""
    return offload_us(device, job.carried(job.reserved.persistent))


def worth_us(price: Micros, share_ppm: int) -> Micros:
    """How long it takes until something at this price has cost no more than its share of the time."""
    return 0 if share_ppm >= WHOLE_PPM else price * WHOLE_PPM // share_ppm
