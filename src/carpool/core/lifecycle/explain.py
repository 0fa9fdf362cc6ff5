"""Why a job does not compute right now, for people."""

from __future__ import annotations

from carpool.core.allocators import whole_devices
from carpool.core.memory import exclusive
from carpool.core.memory.grants import free_on
from carpool.core.memory.requests import may_grow
from carpool.core.model import JobPhase, Reason
from carpool.core.placement.queue import explain_queued
from carpool.core.state.amounts import needed, ready
from carpool.core.state.state import Claim, Device, Job, Pause, State
from carpool.core.turns import weights
from carpool.core.turns.exclusive_turns import barred, serves, suspends
from carpool.core.units import size


def explain(state: State, job: Job) -> Reason | None:
    """None: the job does what it wants to do (or nothing is known against it)."""
    if job.phase is JobPhase.ENDED:
        return job.reason
    if state.whole is not None and not job.unmet:
        return whole_devices.explain(state, job)
    if job.phase is JobPhase.QUEUED:
        return explain_queued(state, job)
    device = state.device_of(job)
    if device is None:
        return None
    if (job.wanted or job.pending) and state.held_off(job):
        return exclusive.has_it(state, device)
    if job.claim is Claim.STORE:
        return _explain_store(state, device, job)
    if suspends(job) and job.offloaded:
        return _explain_suspended(device, job)
    if job.wanted and serves(job):
        return _explain_service(device, job)
    if (paused := _explain_paused(state, device, job)) is not None:
        return paused
    if job.wanted and barred(state, job):
        return Reason("turn", f"waiting for its turn: {_guest(state, device)}")
    lane = state.lane_of(job)
    who = f"job {lane.holder} has it" if lane is not None and lane.holder is not None else "no job has it"
    if job.offloaded:
        return _explain_offloaded(device, job, who)
    if job.pending:
        return _explain_request(device, job)
    if job.wanted and lane is not None:
        return Reason("turn", f"waiting for the turn of lane {lane.id}: {who}")
    return None


def _explain_suspended(device: Device, job: Job) -> Reason:
    text = "suspended; " if job.usage.persistent_live else ""
    if job.claim is Claim.TURNS:
        return Reason("turn", f"{text}waiting for running jobs on {device.spec.id} to yield")
    if job.claim is Claim.MOVING:
        return Reason(
            "offloaded", f"{text}needs {device.spec.id} to itself for its turn: memory of other jobs is being moved out"
        )
    if device.usable < job.usage.persistent_live:
        needs = (
            f"needs {size(job.usage.persistent_live)} of {device.spec.id}, of which {size(device.usable)} can be used"
        )
        return Reason("memory", f"{text}{needs}")
    return Reason("turn", f"{text}waiting for its turn on {device.spec.id}, which it needs to itself for that time")


def _explain_service(device: Device, job: Job) -> Reason:
    if not ready(job):
        need = weights.cost(device, job) + (needed(job).total if job.offloaded else 0)
        return Reason("memory", f"waiting for memory: needs {size(need)} with its weights, {free_on(device)}")
    if device.guest is not None:
        return Reason("turn", f"waiting for its turn: job {device.guest} has {device.spec.id} to itself for its turn")
    return Reason("turn", f"waiting for running jobs on {device.spec.id} to pause")


def _explain_paused(state: State, device: Device, job: Job) -> Reason | None:
    lane = state.lane_of(job)
    if lane is None or lane.holder != job.id or lane.pause is not Pause.PAUSED:
        return None
    return Reason("paused", f"paused while a service needs {device.spec.id}")


def _guest(state: State, device: Device) -> str:
    """Who has the device, or is to have it."""
    if device.guest is not None:
        what = "service" if serves(state.jobs[device.guest]) else "engine checkpoint"
        return f"job {device.guest} has {device.spec.id} to itself for its turn ({what})"
    if any(serves(job) and job.claim is Claim.TURNS for job in map(state.jobs.__getitem__, device.guests)):
        return f"{device.spec.id} is being freed for the turn of a service"
    return f"{device.spec.id} is being freed for the turn of a job that needs it to itself (engine checkpoint)"


def _explain_offloaded(device: Device, job: Job, who: str) -> Reason:
    text = "its memory was moved to the host store"
    if not job.wanted and not job.pending:
        return Reason("offloaded", f"{text}; it comes back when the job resumes")
    if job.claim is Claim.NONE:
        return Reason("offloaded", f"{text}; waiting for the turn of lane {job.lane}: {who}")
    text = f"{text}; needs {size(needed(job).total)}, {free_on(device)}"
    return Reason(
        "offloaded", f"{text}: memory of other jobs is being moved out" if job.claim is Claim.MOVING else text
    )


def _explain_store(state: State, device: Device, job: Job) -> Reason:
    budget, need = state.settings.host_store or 0, size(needed(job).total)
    return Reason(
        "store",
        f"waiting for memory: needs {need} on {device.spec.id}, and the memory of other jobs there does not fit into"
        f" the host store, which holds {size(state.store_kept)} of {size(budget)}",
    )


def _explain_request(device: Device, job: Job) -> Reason:
    request = min(job.pending.values(), key=lambda request: request.sequence)
    what = f"{size(request.total)} of {request.memory_class} memory"
    if not may_grow(device, job):
        return Reason("growing", f"waiting for {what}: job {device.grower} is being measured on {device.spec.id}")
    return Reason("memory", f"waiting for memory: needs {what}, {free_on(device)}")
