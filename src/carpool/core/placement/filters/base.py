"""A filter: one condition of placement, with all that the rest of Carpool knows of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from carpool.core.memory.lanes import Refusal
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State

#: Why a device does not take a job now, and why no device does; None: the condition is met.
DeviceRule = Callable[[State, Device, Job], Refusal | None]
JobRule = Callable[[State, Job], Refusal | None]


class Filter(NamedTuple):
    """A condition of placement, and its row in the docs (`docs/placement.md`)."""

    codes: tuple[str, ...]  # of its reasons
    waits: str  # what a job waits for that does not meet it
    settings: tuple[str, ...] = ()
    device: DeviceRule | None = None
    job: JobRule | None = None
