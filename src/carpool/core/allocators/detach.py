"""The ways in which a job attaches to its seat in a lane, and loses it; `take_back` is the common part of the latter.

A job loses its turn and its memory when its process leaves the device and goes on without it, when the job has not used
the device for long after its start, and when its attempt ends.  Only then the job leaves its lane and its devices, too.
"""

from __future__ import annotations

from carpool.core.events import Detached, TraitsSeen
from carpool.core.memory import contexts, exclusive, grants, lanes, preemption
from carpool.core.metering import co_runners, warmup
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.turns import turns, weights
from carpool.core.turns.order import touch_lanes


def take_back(state: State, device: Device, job: Job) -> None:
    """Take the device back from the job: its turn and its memory are free, and its warm-up is over.

    The job keeps its place there.  Unless it has ended, or waits to be started again, it is told that it has no memory.
    """
    turns.forget(state, job)
    grants.release(state, job)
    warmup.over(state, device, job)


def attached(state: State, job: Job) -> None:
    """Record that a process of the job has attached.  The counters of each further process start from zero."""
    job.set(attached=True, was_attached=True, idle_since_us=state.now, usage=type(job.usage)())
    co_runners.comes(state, job)
    device = state.device_of(job)
    if device is None:
        return
    warmup.loaded(state, device, job)
    if job.suspends:
        preemption.checkpoint_arrived(state, device, job)


def detached(state: State, job: Job, event: Detached) -> None:
    """Take the device back from a job whose attached process is gone; its secondary processes keep their memory."""
    co_runners.goes(state, job)
    job.attached = False
    exclusive.seen(state, job, TraitsSeen(job.id, event.alone))
    device = state.device_of(job)
    assert device is not None, "a process of the job had a seat there"
    take_back(state, device, job)
    grants.keep(state, job, event.kept)


def never_came(state: State, job: Job) -> None:
    """End the warm-up of a job that has not used its device by now; one without an attached process keeps nothing."""
    device = state.device_of(job)
    if device is None or job.used_device:
        return
    if job.attached:
        warmup.over(state, device, job)
    else:
        take_back(state, device, job)
    grants.freed(state, device)


def leave(state: State, job: Job, device: Device) -> None:
    """Free all that a job whose attempt is over had of this device and of its other devices."""
    take_back(state, device, job)
    lanes.leave(state, job)
    device.jobs.discard(job.id)
    state.in_use.remove(job.id)
    contexts.ends(state, device, job)
    if job.id in device.excluding:
        device.excluding.discard(job.id)
        touch_lanes(state, device)  # jobs that were held off for its turn may begin
        preemption.advance(state, device)  # and paused holders go on
        weights.owner_left(state, device, job.spec.owner)
    exclusive.seen(state, job, TraitsSeen(job.id))
    exclusive.give_up(state, device, job)  # also if it was submitted as exclusive
    exclusive.release_others(state, job)
    grants.freed(state, device)
    job.tell = None
