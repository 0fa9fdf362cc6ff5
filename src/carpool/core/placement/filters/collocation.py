"""Conditions for joining other jobs on a device (after CARMA).

They are free memory with a margin, little risk, and fresh telemetry.  A device that does not meet one is tried last,
or, with `Settings.placement_strict`, is closed to newcomers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from carpool.core.memory.grants import free_on
from carpool.core.memory.lanes import Refusal
from carpool.core.model import GIB, Load, Memory, Reason, Settings
from carpool.core.placement.filters.base import Filter
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.stats import percentile_x100
from carpool.core.units import format_size

LARGEST_MARGIN = 2 * GIB
MARGIN_FRACTION = 20
#: Weights of mean, median, 95th percentile and exponential average, in tenths (constants of CARMA's published code).
MEAN, MEDIAN, TAIL, RECENT = 2, 3, 3, 2


def margin_of(settings: Settings, device: Device) -> int:
    """Bytes that are to stay free beside what a newcomer is expected to need."""
    if settings.margin is not None:
        return settings.margin
    return min(LARGEST_MARGIN, device.spec.capacity // MARGIN_FRACTION)


def unmet(state: State, device: Device, job: Job, need: Memory) -> Refusal | None:
    """Return the first condition that is not met; None: all are.  An idle device has none to meet."""
    if device.idle:
        return None
    if not job.suspends and device.free < need.total + margin_of(state.settings, device):
        return partial(_little_memory, state, device, need)
    if device.load is not None:
        why = risky(device.load, state.settings)
        return partial(Reason, "risk", f"{device.spec.id} is too busy to be shared: {why}") if why else None
    return partial(_unknown, device) if device.measured else None


def _strict(state: State, device: Device, job: Job) -> Refusal | None:
    return unmet(state, device, job, job.requirements.memory) if state.settings.placement_strict else None


def _little_memory(state: State, device: Device, need: Memory) -> Reason:
    margin = format_size(margin_of(state.settings, device))
    return Reason(
        "margin", f"needs {format_size(need.total)} and a margin of {margin} beside others, {free_on(state, device)}"
    )


def _unknown(device: Device) -> Reason:
    """Explain that the device has stopped reporting what it does, or has never reported it."""
    why = f": {device.unmeasured_why}" if device.unmeasured_why else ""
    if device.answered:
        return Reason("stale", f"{device.spec.id} has stopped reporting{why}")
    return Reason("unmeasured", f"{device.spec.id} has never answered a measurement{why}")


# Risk: how likely it is that one more job on a device slows those that are there


def risk_ppm(values: Sequence[int]) -> int:
    """Weigh 0.2 mean + 0.3 median + 0.3 p95 + 0.2 exponential average of a window of one metric, all in millionths.

    ``values``: at least one, oldest first.  The exponential average starts with the oldest and has alpha = 2 / (n + 1);
    percentiles are interpolated linearly.  Rounded down.
    """
    mean = sum(values) // len(values)
    ordered = sorted(values)
    median, tail = (percentile_x100(ordered, percent) // 100 for percent in (50, 95))
    return (MEAN * mean + MEDIAN * median + TAIL * tail + RECENT * _recent(values)) // 10


def _recent(values: Sequence[int]) -> int:
    span = len(values) + 1
    average = values[0]
    for value in values[1:]:
        average += (value - average) * 2 // span
    return average


def risky(load: Load, settings: Settings) -> str | None:
    """Return the text why a device with this load is closed for collocation; None: it is open.

    Closed where the multiprocessors are nearly always active and, besides, well occupied or the memory is busy.  A
    counter that the device does not have closes nothing.
    """
    if load.risk_active_ppm < settings.risk_active_ppm:
        return None
    for name, value, limit in (
        ("SMOCC", load.risk_occupancy_ppm, settings.risk_occupancy_ppm),
        ("DRAMA", load.risk_dram_ppm, settings.risk_dram_ppm),
    ):
        if value is not None and value >= limit:
            active = _shown("SMACT", load.risk_active_ppm, settings.risk_active_ppm)
            return f"{active} and {_shown(name, value, limit)}"
    return None


def _shown(name: str, value: int, limit: int) -> str:
    return f"risk({name}) {value / 1e6:.2f} >= {limit / 1e6:.2f}"


FILTER = Filter(
    ("margin", "risk", "stale", "unmeasured"),
    "a condition for sharing the device, with `placement_strict` 1; otherwise such a device is tried last",
    ("placement_strict", "margin", "risk_active_ppm", "risk_occupancy_ppm", "risk_dram_ppm"),
    _strict,
)
