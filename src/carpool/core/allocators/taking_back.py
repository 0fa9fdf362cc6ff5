"""Jobs that come to their seat in a lane, and all ways in which they lose it: `take_back` is what these have in common.

A job loses what it has when its process leaves the device and goes on without it, when it has not come near the device
for long after its start, and when it ends.  Only then it leaves its lane and its devices, too.
"""

from __future__ import annotations

from carpool.core.events import Detached, TraitsSeen
from carpool.core.memory import contexts, exclusive, grants, lanes, preemption, suspension
from carpool.core.metering import co_runners, warmup
from carpool.core.placement import gangs
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.turns import turns, weights
from carpool.core.turns.exclusive_turns import touch_lanes


def take_back(state: State, device: Device, job: Job) -> None:
    """The device is taken back from the job: its turn and its memory are free, and it is no newcomer any more.

    It keeps its place there.  If it has neither ended nor waits to be started again, it is told that it has no memory.
    """
    turns.forget(state, job)
    grants.release(state, job)
    warmup.over(state, device, job)


def attached(state: State, job: Job) -> None:
    """A process of the job sits down.  A later one of the same job counts from zero."""
    job.attached, job.was_attached, job.idle_since_us = True, True, state.now
    job.usage = type(job.usage)()
    co_runners.comes(state, job)
    device = state.device_of(job)
    if device is None:
        return
    warmup.loaded(state, device, job)
    if job.suspends:
        suspension.arrived(state, device, job)


def detached(state: State, job: Job, event: Detached) -> None:
    """The attached process is gone; the job goes on without the device, all but its secondary processes."""
    co_runners.goes(state, job)
    job.attached = False
    exclusive.seen(state, job, TraitsSeen(job.id, event.alone))
    device = state.device_of(job)
    assert device is not None, "a process of the job had a seat there"
    take_back(state, device, job)
    grants.keep(state, job, event.kept)


def never_came(state: State, job: Job) -> None:
    """The job was started a while ago.  If it has not come near its device it counts no more, and keeps nothing."""
    device = state.device_of(job)
    if device is None or job.touched:
        return
    if job.attached:
        warmup.over(state, device, job)
    else:
        take_back(state, device, job)
    grants.freed(state, device)


def leave(state: State, job: Job, device: Device) -> None:
    """The job's attempt is over: what it had of this device and its others is free when this returns."""
    take_back(state, device, job)
    lanes.leave(state, job)
    device.jobs.discard(job.id)
    contexts.ends(state, device, job)
    if job.id in device.excluding:
        device.excluding.discard(job.id)
        touch_lanes(state, device)  # whoever was held off for its turn may begin
        preemption.advance(state, device)  # or go on
        weights.owner_left(state, device, job.spec.owner)
    exclusive.seen(state, job, TraitsSeen(job.id))
    exclusive.give_up(state, device, job)  # also if it was submitted so
    gangs.let_go(state, job)
    grants.freed(state, device)
