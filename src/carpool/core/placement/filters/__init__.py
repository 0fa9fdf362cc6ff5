"""Conditions of placement, one in each file: its rule, its reason, its settings and its row in the docs.

A further condition is a file with a `Filter`, and its name in `FILTERS`.  May import memory and everything below.
"""

from __future__ import annotations

from carpool.core.memory.lanes import Refusal
from carpool.core.placement.filters import (
    collocation,
    drained,
    exclusive,
    gang,
    host_memory,
    reserved,
    room,
    user_limits,
    warm_up,
)
from carpool.core.placement.filters.base import Filter
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State

#: Asked in this order; the first one that is not met is the reason that users see.
FILTERS: tuple[Filter, ...] = (
    drained.FILTER,
    user_limits.FILTER,
    host_memory.FILTER,
    reserved.FILTER,
    exclusive.FILTER,
    room.FILTER,
    warm_up.FILTER,
    collocation.FILTER,
    gang.FILTER,
)
_DEVICE_RULES = tuple(each.device for each in FILTERS if each.device is not None)
_JOB_RULES = tuple(each.job for each in FILTERS if each.job is not None)


def closed(state: State, device: Device, job: Job) -> Refusal | None:
    """Return why nothing at all, or no job like this one, may be placed on the device now."""
    for rule in _DEVICE_RULES:
        refusal = rule(state, device, job)
        if refusal is not None:
            return refusal
    return None


def held_up(state: State, job: Job) -> Refusal | None:
    """Return why the job may be placed on no device now, whichever it is."""
    for rule in _JOB_RULES:
        refusal = rule(state, job)
        if refusal is not None:
            return refusal
    return None
