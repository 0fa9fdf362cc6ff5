"""Reasons shown to users: why a job in a lane, or on its way to one, does not compute right now."""

from __future__ import annotations

from carpool.core.memory import exclusive, idle_engines
from carpool.core.memory.grants import free_on
from carpool.core.memory.requests import may_grow
from carpool.core.model import JobId, JobPhase, Reason
from carpool.core.placement.queue import explain_queued
from carpool.core.state.amounts import needed, ready
from carpool.core.state.device import Device
from carpool.core.state.job import Job, WaitState
from carpool.core.state.seat_states import PreemptState
from carpool.core.state.state import State
from carpool.core.turns import weights
from carpool.core.turns.order import may_start
from carpool.core.units import format_size


def explain(state: State, job: Job) -> Reason | None:
    """Return why the job does not compute now; None: nothing that the core knows stands in its way."""
    if job.phase is JobPhase.QUEUED:
        return explain_queued(state, job)
    device = state.device_of(job)
    if device is None:
        return None
    reasons = (answer(state, device, job) for answer in _ANSWERS)
    return next((reason for reason in reasons if reason is not None), None)


def _paused_by_user(state: State, device: Device, job: Job) -> Reason | None:
    if not job.paused:
        return None
    return Reason("paused_by_user", f"{job.paused_until('go on')}{_where_its_memory_is(device, job)}")


def _where_its_memory_is(device: Device, job: Job) -> str:
    if job.limit.persistent and job.pinned is not None:
        return f"; its memory stays on {device.spec.id}: {job.pinned}"
    if job.limit.persistent and device.exclusive_holder == job.id:
        return f"; its memory stays on {device.spec.id}, of which it has exclusive use"
    if job.limit.persistent or job.offload_asked:
        return f"; its memory has not left {device.spec.id} yet"
    return "; its memory is in the host store" if job.stored.persistent else ""


def _blocked(state: State, device: Device, job: Job) -> Reason | None:
    stopped = (job.wanted or job.pending) and state.blocked_by_exclusive(job)
    return exclusive.has_it(state, device) if stopped else None


def _for_store(state: State, device: Device, job: Job) -> Reason | None:
    return _explain_store(state, device, job) if job.wait is WaitState.STORE else None


def _suspended(state: State, device: Device, job: Job) -> Reason | None:
    return _explain_suspended(device, job) if job.suspends and job.offloaded else None


def _service(state: State, device: Device, job: Job) -> Reason | None:
    return _explain_service(state, device, job) if job.wanted and job.serves else None


def _kept_out(state: State, device: Device, job: Job) -> Reason | None:
    if not job.wanted or may_start(state, job):
        return None
    if device.exclusive_turn is not None and device.exclusive_turn == device.exclusive_holder:
        return exclusive.has_it(state, device)
    return Reason("turn", f"waiting for its turn: {_exclusive_turn(state, device)}")


def _for_memory(state: State, device: Device, job: Job) -> Reason | None:
    if job.offloaded:
        return _explain_offloaded(state, device, job, _who_computes(state, job))
    return _explain_request(state, device, job) if job.pending else None


def _for_turn(state: State, device: Device, job: Job) -> Reason | None:
    if not job.wanted or job.lane is None:
        return None
    return Reason("turn", f"waiting for the turn of lane {job.lane}: {_who_computes(state, job)}")


def _who_computes(state: State, job: Job) -> str:
    lane = state.lane_of(job)
    return (
        f"job {state.called(lane.holder)} has it" if lane is not None and lane.holder is not None else "no job has it"
    )


def _explain_suspended(device: Device, job: Job) -> Reason:
    text = "suspended; " if job.usage.persistent_live else ""
    if job.wait is WaitState.TURNS:
        return Reason("turn", f"{text}waiting for running jobs on {device.spec.id} to yield")
    if job.wait is WaitState.MOVING:
        return Reason(
            "offloaded",
            f"{text}waiting for an exclusive turn on {device.spec.id}: memory of other jobs is being moved out",
        )
    if device.usable < job.usage.persistent_live:
        needs = f"needs {format_size(job.usage.persistent_live)} of {device.spec.id}"
        return Reason("memory", f"{text}{needs}, of which {format_size(device.usable)} can be used")
    return Reason("turn", f"{text}waiting for an exclusive turn on {device.spec.id}")


def _explain_service(state: State, device: Device, job: Job) -> Reason:
    if not ready(job):
        need = weights.cost(device, job) + (needed(job).total if job.offloaded else 0)
        text = f"waiting for memory: needs {format_size(need)} with its weights, {free_on(state, device)}"
        return Reason("memory", text)
    if device.exclusive_turn is not None:
        return Reason("turn", f"waiting for its turn: {_has_turn(state, device, device.exclusive_turn)}")
    return Reason("turn", f"waiting for running jobs on {device.spec.id} to pause")


def _paused(state: State, device: Device, job: Job) -> Reason | None:
    lane = state.lane_of(job)
    if lane is None or lane.holder != job.id or lane.preempt.state is not PreemptState.PAUSED:
        return None
    return Reason("paused", f"paused while a service needs {device.spec.id}")


def _exclusive_turn(state: State, device: Device) -> str:
    """Say which job has the device for its turn, or for what sort of job the device is being freed."""
    if device.exclusive_turn is not None:
        what = "service" if state.jobs[device.exclusive_turn].serves else "checkpoint"
        return f"{_has_turn(state, device, device.exclusive_turn)} ({what})"
    if any(job.serves and job.wait is WaitState.TURNS for job in map(state.jobs.__getitem__, device.excluding)):
        return f"{device.spec.id} is being freed for the turn of a service"
    return f"{device.spec.id} is being freed for the turn of a checkpoint job"


def _has_turn(state: State, device: Device, holder: JobId) -> str:
    return f"job {state.called(holder)} has exclusive use of {device.spec.id} for its turn"


def _explain_offloaded(state: State, device: Device, job: Job, who: str) -> Reason:
    text = "its memory was moved to the host store"
    if not job.wanted and not job.pending:
        return Reason("offloaded", f"{text}; it comes back when the job resumes")
    if job.wait is WaitState.NONE:
        return Reason("offloaded", f"{text}; waiting for the turn of lane {job.lane}: {who}")
    text = f"{text}; needs {format_size(needed(job).total)}, {free_on(state, device)}"
    return Reason(
        "offloaded", f"{text}: memory of other jobs is being moved out" if job.wait is WaitState.MOVING else text
    )


def _explain_store(state: State, device: Device, job: Job) -> Reason:
    budget, need = state.settings.host_store or 0, format_size(needed(job).total)
    ending = ", ".join(f"engine {job.number}" for job in idle_engines.awaited(state))
    room = f"; {ending}, idle, is being ended for room there" if ending else ""
    return Reason(
        "store",
        f"waiting for memory: needs {need} on {device.spec.id}, and the memory of other jobs there does not fit into"
        f" the host store, which holds {format_size(state.store_kept)} of {format_size(budget)}{room}",
    )


def _explain_request(state: State, device: Device, job: Job) -> Reason:
    request = min(job.pending.values(), key=lambda request: request.sequence)
    what = f"{format_size(request.total)} of {request.memory_class} memory"
    if not may_grow(device, job):
        assert device.grower is not None
        which = f"job {state.called(device.grower)}"
        return Reason("growing", f"waiting for {what}: {which} is being measured on {device.spec.id}")
    return Reason("memory", f"waiting for memory: needs {what}, {free_on(state, device)}")


#: Asked in this order about a job on a device; the first one that returns a reason decides.
_ANSWERS = (_paused_by_user, _blocked, _for_store, _suspended, _service, _paused, _kept_out, _for_memory, _for_turn)
