"""In which order devices are tried for a queued job, and where on a device it could go now."""

from __future__ import annotations

from typing import NamedTuple

from carpool.core.memory import contexts
from carpool.core.memory.lanes import Place, Refusal, find_place
from carpool.core.metering.views import device_view, job_view, lazy_view
from carpool.core.model import DeviceId
from carpool.core.placement.filters import closed
from carpool.core.placement.filters.collocation import unmet
from carpool.core.placement.filters.user_limits import out_of_bounds, over_limit
from carpool.core.placement.needs import allowed, fits, need_of, need_on
from carpool.core.policies.base import Key
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State


class PlacementChoice(NamedTuple):
    """Where a job goes: all its devices, and a lane of the first."""

    devices: tuple[Device, ...]
    place: Place


def may_be_kept(state: State, device: Device, job: Job) -> bool:
    """Whether the device may be kept for the job: it could take the job alone, and no limit of its user is reached."""
    return fits(device, job) and over_limit(state, job) is None and not out_of_bounds(state, device, job)


def open_to(state: State, job: Job) -> set[DeviceId]:
    """Return the names of the devices that the job may use, and that its user may use now."""
    return {device.spec.id for device in allowed(state, job) if not out_of_bounds(state, device, job)}


def candidates(state: State, job: Job) -> list[Device]:
    """Return the devices that the job may use, best first."""
    able = allowed(state, job)
    if len(able) < 2:
        return able
    ranked = [(rank(state, job, device), device.position, device) for device in able]
    return [device for *_, device in sorted(ranked)]  # positions differ: devices are never compared


def rank(state: State, job: Job, device: Device) -> tuple[bool, bool, Key, int]:
    """Return the key by which devices are tried for a job, smallest first.

    Drained devices and those with a condition that is not met come last, idle ones first; then the policy decides.
    """
    reluctant = bool(device.spec.drained) or unmet(state, device, job, need_of(job)) is not None
    return (reluctant, not device.idle, key_of(state, job, device), len(device.warming_up))


def key_of(state: State, job: Job, device: Device) -> Key:
    """Return the placement policy's key of the device for the job; the smallest comes first."""
    return state.placement.device_key(lazy_view(state), job_view(state, job), device_view(state, device))


def on_device(state: State, device: Device, job: Job) -> Place | Refusal:
    """Where on a device the job could go now, as one of its devices; or why it cannot."""
    refusal = closed(state, device, job)
    if refusal is not None:
        return refusal
    need = need_on(device, job)
    return contexts.short(state, device, job) or find_place(state, device, job, need, contexts.taken(device, job))
