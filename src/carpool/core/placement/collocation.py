"""The conditions of joining others on a device (after CARMA): free memory with a margin, nobody whom it would
slow or who would slow it (see `core.placement.interference`), little risk, fresh telemetry.

Where one is not met the device is tried last, or, with `Settings.placement_strict`, is closed to newcomers.
"""

from __future__ import annotations

from functools import partial

from carpool.core.memory.grants import free_on
from carpool.core.memory.lanes import Refusal
from carpool.core.model import GIB, Memory, Reason, Settings
from carpool.core.placement.interference import unbearable
from carpool.core.placement.risk import risky
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.units import size

LARGEST_MARGIN = 2 * GIB
MARGIN_FRACTION = 20


def margin_of(settings: Settings, device: Device) -> int:
    """Bytes that are to stay free beside what a newcomer is expected to need."""
    if settings.margin is not None:
        return settings.margin
    return min(LARGEST_MARGIN, device.spec.capacity // MARGIN_FRACTION)


def unmet(state: State, device: Device, job: Job, need: Memory) -> Refusal | None:
    """The first condition that is not met.  An idle device has none to meet."""
    if device.idle:
        return None
    if not job.suspends and device.free < need.total + margin_of(state.settings, device):
        return partial(_little_memory, state, device, need)
    slow = unbearable(state, device, job)
    if slow is not None:
        return slow
    if device.load is not None:
        why = risky(device.load, state.settings)
        return partial(Reason, "risk", f"{device.spec.id} is too busy to be shared: {why}") if why else None
    return partial(_unknown, device) if device.measured else None


def _little_memory(state: State, device: Device, need: Memory) -> Reason:
    margin = size(margin_of(state.settings, device))
    return Reason("margin", f"needs {size(need.total)} and a margin of {margin} beside others, {free_on(device)}")


def _unknown(device: Device) -> Reason:
    """What it did once is stale; of one that has never answered nothing was ever known."""
    why = f": {device.unmeasured_why}" if device.unmeasured_why else ""
    if device.answered:
        return Reason("stale", f"nobody knows what {device.spec.id} does{why}")
    return Reason("unmeasured", f"{device.spec.id} has never answered a measurement{why}")
