"""Newcomers that are warming up: how many a device takes at once (TTFK, dispatch to first kernel).

Without a window (`Settings.warm_window_us` 0) only jobs of which nothing is known count, until they touch the device.
With one every newcomer counts, until that long after its first use: by then its memory and its load are seen.

Whether a job of which nothing is known uses its device at all shows when it loads its framework (`Job.attached`). Where
the machine is measured (`HostMeasured`), a job that has not loaded it, and has used no processor lately, does not
count; of the others, host devices, which compute on processors, take as many as there are processors.
"""

from __future__ import annotations

from collections.abc import Iterable

from carpool.core.model import JobId
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State


def begin(state: State, device: Device, job: Job) -> None:
    """Count a job that is being started as warming up, if it has to be."""
    if state.settings.warm_window_us or not job.memory_known:
        device.warming_up.add(job.id)
        device.changed()


def idle(state: State, jobs: Iterable[JobId]) -> None:
    """Stop counting newcomers that do nothing and have not loaded their frameworks."""
    for job in () if state.settings.warm_window_us else filter(None, map(state.jobs.get, jobs)):
        device = state.device_of(job)
        if device is not None and not job.attached:
            over(state, device, job)


def loaded(state: State, device: Device, job: Job) -> None:
    """Count a job that has loaded its framework late as warming up from now on."""
    late = state.host.measured and not state.settings.warm_window_us and not (job.memory_known or job.used_device)
    if late and job.id not in device.warming_up:
        begin(state, device, job)
        state.timers.set(("warm", job.id), state.now + state.settings.warm_timeout_us)


def seen_using(state: State, job: Job) -> None:
    """Record that the job has asked for memory or for a turn: its timer (`detach.never_came`) has no purpose now."""
    if not job.used_device:
        job.used_device = True
        state.timers.cancel(("warm", job.id))


def used(state: State, device: Device, job: Job) -> None:
    """Record that the job uses the device: its warm-up, or only its window, ends."""
    if job.id not in device.warming_up or job.warming_up:
        return
    if state.settings.warm_window_us:
        job.warming_up = True
        state.timers.set(("warmed", job.id), state.now + state.settings.warm_window_us)
    else:
        over(state, device, job)


def over(state: State, device: Device, job: Job) -> None:
    """End the warm-up of a job: it is warm, or it has left, or it never came near the device."""
    state.timers.cancel(("warmed", job.id))
    if job.warming_up:
        job.warming_up = False
    if job.id in device.warming_up:
        device.warming_up.discard(job.id)
        device.changed()
        state.admit_all = True
