"""Devices that are full: other programs leave too little, a job waits for memory there, or there are enough jobs."""

from __future__ import annotations

from functools import partial

from carpool.core.memory.lanes import Refusal
from carpool.core.model import Reason
from carpool.core.placement.filters.base import Filter
from carpool.core.placement.needs import too_little
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.units import format_size


def _full(state: State, device: Device, job: Job) -> Refusal | None:
    name, most = device.spec.id, state.settings.max_jobs
    if too_little(device, job.requirements):
        return partial(_taken, device, job)
    if device.short is not None and not device.oversubscribed:
        return partial(Reason, "short", f"job {state.called(device.short)} waits for memory of {name}, and comes first")
    if most is not None and len(device.jobs) >= most:
        return partial(Reason, "max_jobs", f"{name} has {len(device.jobs)} jobs, the maximum (max_jobs)")
    return None


def _taken(device: Device, job: Job) -> Reason:
    """Explain that other programs leave too little; `needs.allowed` has checked that the whole device is larger."""
    text = f"ran out of memory alone on {format_size(job.requirements.outgrown)}"
    return Reason("memory", f"{text}, and other programs leave {format_size(device.usable)} of {device.spec.id}")


FILTER = Filter(
    ("memory", "short", "max_jobs"),
    "memory that other programs hold, a job there that waits for memory, or the end of one of too many jobs",
    ("max_jobs",),
    _full,
)
