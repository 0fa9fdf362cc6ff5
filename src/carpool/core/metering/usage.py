"""Figures of jobs: device time, had and still needed, and the cost of moving memory as far as it has been measured."""

from __future__ import annotations

from carpool.core.model import MIB, Micros, Usage
from carpool.core.state.amounts import cost, needed, ready
from carpool.core.state.device import Device, Lane, TransferTotals
from carpool.core.state.job import Job, WaitState
from carpool.core.state.seat_states import Paused
from carpool.core.state.state import State
from carpool.core.stats import PPM

FULL_WEIGHT = 100
#: Before anything has been moved: 2 GB/s.
ASSUMED_BYTES_PER_US = 2000
#: No move counts as slower than 10 MB/s, or as larger than 16 TiB; smaller ones than 1 MiB tell nothing.
SLOWEST_BYTES_PER_US = 10
LARGEST = 1 << 44


def attained(state: State, job: Job) -> Micros:
    """Return the job's device time up to now, the present turn included."""
    if job.lane is None:
        since = job.devices_us
        return job.attained_us if since is None else job.attained_us + max(0, state.now - since)
    lane = state.lanes[job.lane]
    if lane.holder != job.id:
        return job.attained_us
    until = lane.preempt.since_us if isinstance(lane.preempt, Paused) else state.now
    return max(job.attained_us, lane.turn_base_us + until - lane.turn_us)


def virtual(job: Job, attained_us: Micros) -> Micros:
    """Return the job's weighted device time, given what it has attained by now."""
    return job.virtual_us + (attained_us - job.attained_us) * FULL_WEIGHT // job.spec.weight


def account(state: State, job: Job, usage: Usage) -> None:
    """Take over a job's counters.  A process that attached anew counts from zero again; nothing is lost."""
    gained = usage.device_us - job.usage.device_us
    if gained > 0:
        virtual_us = job.virtual_us + gained * FULL_WEIGHT // job.spec.weight
        job.set(virtual_us=virtual_us, attained_us=job.attained_us + gained)
        _charge(state, job, gained)
    each = usage.device_us // usage.iterations if usage.iterations > 0 and usage.device_us > 0 else job.iteration_us
    job.set(usage=usage, iteration_us=each)


def _charge(state: State, job: Job, gained: Micros) -> None:
    """Charge the job's user for all devices that the job has to itself.  Services are free: they compute for others."""
    if not job.serves:
        state.uses.charge(job.spec.account, gained * max(1, len(job.devices)), state.now)


def reconcile_time(state: State, job: Job, total: Micros) -> None:
    """Count the core's own clock for a job whose driver counts no device time in `Usage`, to keep the order right."""
    missing = total - job.attained_us
    if missing > 0 and job.usage.device_us == 0:
        job.virtual_us += missing * FULL_WEIGHT // job.spec.weight
        job.attained_us = total
        _charge(state, job, missing)


def iterations_total(job: Job) -> int | None:
    """Return the job's total of iterations, as the user or an earlier run says; None: unknown."""
    if job.spec.iterations is not None:
        return job.spec.iterations
    return job.spec.estimate.iterations if job.spec.estimate is not None else None


def remaining(job: Job, attained_us: Micros) -> Micros | None:
    """Return the device time that the job still needs; None: unknown.

    The job's own report of progress counts most, then what the user declared, then earlier runs.
    """
    usage = job.usage
    if usage.progress_total > 0 and usage.progress_done > 0:
        left = max(0, usage.progress_total - usage.progress_done)
        return attained_us * left // usage.progress_done
    if job.spec.iterations is None and job.spec.duration_us is not None:
        return max(0, job.spec.duration_us - attained_us)
    total = iterations_total(job)
    if total is None:
        return None
    each = job.iteration_us
    if each is None and job.spec.estimate is not None:
        each = job.spec.estimate.iteration_us
    return max(0, total - usage.iterations) * each if each is not None else None


def level(state: State, job: Job) -> None:
    """Level the weighted device time of a job that comes to its lane, or back to it, with the jobs there.

    A newcomer starts exactly where the least served of the others stands.  A job that was away keeps a credit of one
    quantum at most: enough that the CPU part of an iteration costs nothing, too little to hoard.
    """
    lane = state.lane_of(job)
    assert lane is not None
    least = _least(state, job)
    if not job.time_levelled:
        job.virtual_us = max(job.virtual_us, lane.virtual_us if least is None else least)
    elif least is not None:
        job.virtual_us = max(job.virtual_us, least - state.quanta[job.device])
    job.time_levelled = True


def _least(state: State, job: Job) -> Micros | None:
    """Return the smallest weighted device time among the others that hold or await the lane's turn.

    Where checkpoint jobs have turns of the whole device, the turns of all its lanes count.
    """
    lane = state.lane_of(job)
    assert lane is not None
    device = state.devices[lane.device]
    whole = bool(device.excluding) and any(state.jobs[number].suspends for number in device.excluding)
    lanes = [state.lanes[number] for number in sorted(device.lanes)] if whole else [lane]
    found = [least for each in lanes if (least := _least_of(state, each, job)) is not None]
    return min(found, default=None)


def _least_of(state: State, lane: Lane, job: Job) -> Micros | None:
    least = min((state.jobs[key[-1]].virtual_us for key in lane.queue if key[-1] != job.id), default=None)
    if lane.holder is not None and lane.holder != job.id:
        holder = state.jobs[lane.holder]
        own = virtual(holder, attained(state, holder))
        least = own if least is None else min(least, own)
    return least


def observe_moves(moved: TransferTotals, before: Usage, after: Usage) -> None:
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
    """Return the time it takes to move ``size`` bytes to the host store."""
    moved = device.moved
    return size * moved.out_us // moved.out_bytes if moved.out_bytes else size // ASSUMED_BYTES_PER_US


def restore_us(device: Device, size: int) -> Micros:
    """Return the time it takes to move ``size`` bytes back to the device."""
    moved = device.moved
    return size * moved.in_us // moved.in_bytes if moved.in_bytes else size // ASSUMED_BYTES_PER_US


def there_and_back_us(device: Device, size: int) -> Micros:
    """Return the time it takes to move ``size`` bytes out and back again."""
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
    """Return the time it takes to move all that a job keeps out of the device."""
    return offload_us(device, job.carried(job.reserved.persistent))


def worth_us(price: Micros, share_ppm: int) -> Micros:
    """Return the time until a step of this price has cost no more than its share of the time."""
    return 0 if share_ppm >= PPM else price * PPM // share_ppm
