"""Devices that are kept for a job that has waited too long (`core.placement.reservations`)."""

from __future__ import annotations

from functools import partial

from carpool.core.memory.lanes import Refusal
from carpool.core.model import Reason
from carpool.core.placement.filters.base import Filter
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State


def kept_for(state: State, job: Job) -> list[Device]:
    """Return the devices that are kept for the job."""
    return [device for device in state.marked_devices() if device.reservation == job.id]


def _reserved(state: State, device: Device, job: Job) -> Refusal | None:
    if device.reservation in (None, job.id):
        return None
    text = f"{device.spec.id} is kept for job {state.called(device.reservation)}, which has waited too long"
    return partial(Reason, "reserved", text)


FILTER = Filter(
    ("reserved",), "a job that has waited too long, and for which the device is kept", ("reserve_after_us",), _reserved
)
