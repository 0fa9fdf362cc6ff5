"""Which devices a queued job may use, in which order they are tried, and which of them are closed to it now."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from carpool.core.memory import contexts, exclusive
from carpool.core.memory.grants import free_on
from carpool.core.memory.lanes import Place, Refusal, find_place
from carpool.core.metering import warmup
from carpool.core.metering.views import device_view, job_view, lazy_view
from carpool.core.model import DeviceId, JobSpec, Memory, Reason
from carpool.core.placement.collocation import unmet
from carpool.core.placement.interference import good_pair
from carpool.core.placement.user_limits import bound_to, explain_devices, over_limit
from carpool.core.policies.base import Key
from carpool.core.state.amounts import clipped
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.residency import NOTHING
from carpool.core.state.state import State
from carpool.core.units import format_size

#: How much more than was measured or expected is reserved after an out-of-memory error: three halves.
RAISE_BY, RAISE_OF = 3, 2


class PlacementChoice(NamedTuple):
    """Where a job goes: all its devices, and a lane of the first."""

    devices: tuple[Device, ...]
    place: Place


def need_of(job: Job) -> Memory:
    """Return what to reserve for a job when it is placed: nothing yet if it is suspended between its turns."""
    return NOTHING if job.suspends else job.estimate


def need_on(device: Device, job: Job) -> Memory:
    """Return what to reserve for a job when it is placed on this device.

    The need of a job that has run out of memory is a guess with room to spare.  On a device that it has to itself the
    spare part may be missing, where others hold a little of it; what the guess was made from may not.  On an idle
    device a job has what there is beside its own context.
    """
    need, most = need_of(job), max(0, device.usable - contexts.taken(device, job))
    guessed = job.guessed and need.total * RAISE_OF <= most * RAISE_BY
    if guessed or (device.idle and need.total <= device.usable):
        return clipped(need, most)
    return need


def fits(device: Device, job: Job) -> bool:
    """Whether the device could take the job if no other job were there."""
    return need_on(device, job).total <= device.usable and not _too_little(device, job) and not device.spec.drained


def may_be_kept(state: State, device: Device, job: Job) -> bool:
    """Whether the device may be kept for the job: it could take the job alone, and no limit of its user is reached."""
    return fits(device, job) and over_limit(state, job) is None and not _out_of_bounds(state, device, job)


def _out_of_bounds(state: State, device: Device, job: Job) -> bool:
    bounds = bound_to(state, job)
    return bounds is not None and device.spec.id not in bounds


def open_to(state: State, job: Job) -> set[DeviceId]:
    """Return the names of the devices that the job may use, and that its user may use now."""
    return {device.spec.id for device in allowed(state, job) if not _out_of_bounds(state, device, job)}


def _too_little(device: Device, job: Job) -> bool:
    """Whether other programs leave no more of the device than was not enough for the job alone."""
    return 0 < job.outgrown >= device.usable


def named(spec: JobSpec) -> tuple[DeviceId, ...] | None:
    """Return the devices that a job insists on; None: any."""
    return (spec.device,) if isinstance(spec.device, str) else spec.device


def allowed(state: State, job: Job) -> list[Device]:
    """Return the devices that the job may use, in the order in which they were added."""
    names = named(job.spec)
    among = state.devices.values() if names is None else filter(None, map(state.devices.get, dict.fromkeys(names)))
    outgrown = job.outgrown
    able = [device for device in among if _able(device, job, outgrown)]
    return able if names is None else sorted(able, key=lambda device: device.position)


def _able(device: Device, job: Job, outgrown: int) -> bool:
    large = not outgrown or device.spec.capacity > outgrown
    return large and (device.spec.checkpoint or not job.suspends)


def larger(state: State, job: Job, outgrown: int) -> list[int]:
    """Return the capacities above ``outgrown`` bytes of the devices that the job may use, largest first."""
    capacities = (device.spec.capacity for device in allowed(state, job))
    return sorted((capacity for capacity in capacities if capacity > outgrown), reverse=True)


def candidates(state: State, job: Job) -> list[Device]:
    """Return the devices that the job may use, best first."""
    able = allowed(state, job)
    if len(able) < 2:
        return able
    ranked = [(rank(state, job, device), device.position, device) for device in able]
    return [device for *_, device in sorted(ranked)]  # positions differ: devices are never compared


def rank(state: State, job: Job, device: Device) -> tuple[bool, bool, bool, Key, int]:
    """Return the key by which devices are tried for a job, smallest first.

    Drained devices and those with a condition that is not met come last, idle ones first, then good pairs; then the
    policy decides.

    Good pairs come before the policy's key: keys such as free bytes are hardly ever equal, so after it no pair would be
    found.
    """
    reluctant = bool(device.spec.drained) or unmet(state, device, job, need_of(job)) is not None
    unpaired = not good_pair(state, device, job)
    return (reluctant, not device.idle, unpaired, key_of(state, job, device), len(device.warming_up))


def key_of(state: State, job: Job, device: Device) -> Key:
    """Return the placement policy's key of the device for the job; the smallest comes first."""
    return state.placement.device_key(lazy_view(state), job_view(state, job), device_view(state, device))


def _beside_others(state: State, device: Device, job: Job) -> bool:
    """Whether the job may be placed beside the device's exclusive job, because another user has jobs there."""
    return state.beside_others(device) and state.may_compute_beside(device, job)


def closed(state: State, device: Device, job: Job) -> Refusal | None:
    """Why nothing at all, or no job like this one, may be placed on the device now."""
    name, settings = device.spec.id, state.settings
    if device.spec.drained:
        return partial(Reason, "drained", f"{name} is {device.spec.drained}")
    if _out_of_bounds(state, device, job):
        return partial(explain_devices, state, job)
    if device.reservation is not None and device.reservation != job.id:
        text = f"{name} is kept for job {state.called(device.reservation)}, which has waited too long"
        return partial(Reason, "reserved", text)
    if device.exclusive_holder is not None and not _beside_others(state, device, job):
        return partial(exclusive.has_it, state, device)
    if _too_little(device, job):
        return partial(_taken, device, job)
    if device.jobs and (job.exclusive or not state.placement.collocates):
        return partial(_not_empty, state, device, job)
    if device.short is not None and not device.oversubscribed:
        return partial(Reason, "short", f"job {state.called(device.short)} waits for memory of {name}, and comes first")
    if warmup.full(state, device, job):
        return partial(warmup.why, state, device)
    if settings.max_jobs is not None and len(device.jobs) >= settings.max_jobs:
        return partial(Reason, "max_jobs", f"{name} has {len(device.jobs)} jobs, the most that it may have (max_jobs)")
    return unmet(state, device, job, need_of(job)) if settings.placement_strict else None


def _taken(device: Device, job: Job) -> Reason:
    """Explain that other programs leave too little; `_able` has checked that the whole device is larger."""
    text = f"ran out of memory with {format_size(job.outgrown)} to itself"
    return Reason("memory", f"{text}, and other programs leave {format_size(device.usable)} of {device.spec.id}")


def _not_empty(state: State, device: Device, job: Job) -> Reason:
    others = ", ".join(f"job {state.called(number)}" for number in sorted(device.jobs))
    policy = "" if job.exclusive else f", and {state.placement.name} places nobody beside others"
    return Reason("exclusive", f"waiting for {device.spec.id} to itself: {others} there{policy}")


def on_device(state: State, device: Device, job: Job) -> Place | Refusal:
    """Where on a device the job could go now, as one of its devices; or why it cannot."""
    refusal = closed(state, device, job)
    if refusal is not None:
        return refusal
    need = need_on(device, job)
    if job.spec.gang > 1 and need.total > device.free:
        text = f"needs {format_size(need.total)} on each of its devices, {free_on(device)}"
        return partial(Reason, "memory", text)
    return contexts.short(state, device, job) or find_place(state, device, job, need, contexts.taken(device, job))
