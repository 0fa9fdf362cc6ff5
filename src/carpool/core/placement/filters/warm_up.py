"""Devices on which enough newcomers are warming up (`core.metering.warmup`)."""

from __future__ import annotations

from functools import partial

from carpool.core.memory.lanes import Refusal
from carpool.core.model import Reason, Sharing
from carpool.core.placement.filters.base import Filter
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State


def _full(state: State, device: Device, job: Job) -> Refusal | None:
    """Return why the device takes no further newcomer like this one."""
    if not state.settings.warm_window_us and job.memory_known:
        return None
    loaded = sum(state.jobs[number].attached for number in device.warming_up)
    limit = state.settings.warm_limit
    full = loaded >= limit or len(device.warming_up) >= max(limit, _processors(state, device))
    return partial(_why, state, device) if full else None


def _processors(state: State, device: Device) -> int:
    """Return how many newcomers may be there before they load their frameworks; 0: no more than the limit."""
    measured = not state.settings.warm_window_us and device.spec.sharing is Sharing.CONCURRENT
    return state.host.cores if measured else 0


def _why(state: State, device: Device) -> Reason:
    name, jobs = device.spec.id, device.warming_up
    if not state.settings.warm_window_us:
        return Reason("warm", f"{len(jobs)} started jobs of {name} have not been measured yet")
    which = ", ".join(f"job {state.called(job)}" for job in sorted(jobs))
    return Reason("warm", f"{name} is full until {which} {'has' if len(jobs) == 1 else 'have'} warmed up")


FILTER = Filter(
    ("warm",), "new jobs that are warming up", ("warm_limit", "warm_window_us", "warm_timeout_us"), device=_full
)
