"""Devices that a job has to itself, and jobs that must have one to themselves."""

from __future__ import annotations

from functools import partial

from carpool.core.memory.exclusive import has_it
from carpool.core.memory.lanes import Refusal
from carpool.core.model import Reason
from carpool.core.placement.filters.base import Filter
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State


def _exclusive(state: State, device: Device, job: Job) -> Refusal | None:
    if device.exclusive_holder is not None and not _beside_others(state, device, job):
        return partial(has_it, state, device)
    if device.jobs and (job.exclusive or not state.placement.collocates):
        return partial(_not_empty, state, device, job)
    return None


def _beside_others(state: State, device: Device, job: Job) -> bool:
    """Whether the job may be placed beside the device's exclusive job, because another user has jobs there."""
    return state.beside_others(device) and state.may_compute_beside(device, job)


def _not_empty(state: State, device: Device, job: Job) -> Reason:
    others = ", ".join(f"job {state.called(number)}" for number in sorted(device.jobs))
    policy = "" if job.exclusive else f", and {state.placement.name} places no job beside others"
    return Reason("exclusive", f"waiting for exclusive use of {device.spec.id}: {others} there{policy}")


FILTER = Filter(("exclusive",), "the end of an exclusive job there, or an empty device", device=_exclusive)
