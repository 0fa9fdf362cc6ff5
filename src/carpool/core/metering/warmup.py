"""Newcomers that are warming up: how many a device takes at once (TTFK, dispatch to first kernel).

Without a window (`Settings.warm_window_us` 0) only jobs of which nothing is known count, until they touch the device.
With one every newcomer counts, until that long after its first use: by then its memory and its load are seen.
"""

from __future__ import annotations

from carpool.core.model import Reason
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State


def begin(state: State, device: Device, job: Job) -> None:
    """The job is dispatched."""
    if state.settings.warm_window_us or not job.known:
        device.warming_up.add(job.id)


def full(state: State, device: Device, job: Job) -> bool:
    """Whether the device takes no further newcomer like this one."""
    counts = state.settings.warm_window_us or not job.known
    return bool(counts) and len(device.warming_up) >= state.settings.warm_limit


def why(state: State, device: Device) -> Reason:
    """Why `full` says that the device takes no further newcomer, for people."""
    name, count = device.spec.id, len(device.warming_up)
    if not state.settings.warm_window_us:
        return Reason("warm", f"{count} started jobs of {name} have not been measured yet")
    which = ", ".join(f"job {number}" for number in sorted(device.warming_up))
    return Reason("warm", f"{name} takes nobody else while {which} warm{'s' if count == 1 else ''} up there")


def used(state: State, device: Device, job: Job) -> None:
    """The job uses the device.  Only the first time matters."""
    if job.id not in device.warming_up or job.warming_up:
        return
    if state.settings.warm_window_us:
        job.warming_up = True
        state.timers.set(("warmed", job.id), state.now + state.settings.warm_window_us)
    else:
        over(state, device, job)


def over(state: State, device: Device, job: Job) -> None:
    """It counts no more: it is warm, or it has left, or it never came near the device."""
    state.timers.cancel(("warmed", job.id))
    if job.warming_up:
        job.warming_up = False
    if job.id in device.warming_up:
        device.warming_up.discard(job.id)
        state.admit_all = True
