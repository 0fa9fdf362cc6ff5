"""Drained devices: an administrator wants no further job there."""

from __future__ import annotations

from functools import partial

from carpool.core.memory.lanes import Refusal
from carpool.core.model import Reason
from carpool.core.placement.filters.base import Filter
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State


def _drained(state: State, device: Device, job: Job) -> Refusal | None:
    if not device.spec.drained:
        return None
    return partial(Reason, "drained", f"{device.spec.id} is {device.spec.drained}")


FILTER = Filter(("drained",), "the drained device to be released (`carpool undrain`)", device=_drained)
