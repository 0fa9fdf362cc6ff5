"""Devices for a queued job: in which order they are tried, where on one it could go now, and the record of that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from carpool.core.commands import DeviceRow, Placement
from carpool.core.memory import contexts
from carpool.core.memory.lanes import Place, Refusal, find_place, may_open
from carpool.core.metering.views import device_view, job_view, lazy_view
from carpool.core.model import DeviceId
from carpool.core.placement.filters import closed
from carpool.core.placement.filters.collocation import margin_of, unmet
from carpool.core.placement.filters.user_limits import has_limits, out_of_bounds, over_limit
from carpool.core.placement.needs import allowed, fits, may_use, need_on, unrestricted
from carpool.core.policies.base import Key
from carpool.core.state.device import Device
from carpool.core.state.device_order import DeviceOrder
from carpool.core.state.job import Job
from carpool.core.state.state import State

#: The most devices that the record of a placement has, besides the chosen ones; they are looked for among so many.
RECORDED, LOOKED_AT = 8, 64


class PlacementChoice(NamedTuple):
    """The devices that a job gets, and its lane on the first of them."""

    devices: tuple[Device, ...]
    place: Place


def may_be_kept(state: State, device: Device, job: Job) -> bool:
    """Whether the device may be kept for the job: it could take the job alone, and no limit of its user is reached."""
    return fits(device, job) and over_limit(state, job) is None and not out_of_bounds(state, device, job)


def open_to(state: State, job: Job) -> set[DeviceId]:
    """Return the names of the devices that the job may use, and that its user may use now."""
    if unrestricted(job.requirements) and not has_limits(state.settings):
        return set(state.devices)
    return {device.spec.id for device in allowed(state, job.requirements) if not out_of_bounds(state, device, job)}


def candidates(state: State, job: Job) -> list[Device]:
    """Return the devices that the job may use, best first."""
    able = allowed(state, job.requirements)
    if len(able) < 2:
        return able
    ranked = [(rank(state, job, device), device.position, device) for device in able]
    return [device for *_, device in sorted(ranked)]  # positions differ: devices are never compared


def rank(state: State, job: Job, device: Device) -> tuple[bool, bool, Key, int]:
    """Return the key by which devices are tried for a job, smallest first.

    Drained devices and those with a condition that is not met come last, idle ones first; then the policy decides.
    """
    return (reluctant(state, job, device), not device.idle, key_of(state, job, device), len(device.warming_up))


def reluctant(state: State, job: Job, device: Device) -> bool:
    """Whether the device comes after all that are not drained, and all of whose conditions are met."""
    return bool(device.spec.drained) or unmet(state, device, job, job.requirements.memory) is not None


def key_of(state: State, job: Job, device: Device) -> Key:
    """Return the placement policy's key of the device for the job; the smallest comes first."""
    return state.placement.device_key(lazy_view(state), job_view(state, job), device_view(state, device))


def on_device(state: State, device: Device, job: Job) -> Place | Refusal:
    """Return the job's place on a device that is one of its devices, or why it has none there now."""
    return closed(state, device, job) or contexts.short(state, device, job) or place_on(state, device, job)


def place_on(state: State, device: Device, job: Job) -> Place | Refusal:
    """Find a lane of the device for the job and its context, whatever else may be in the way."""
    return find_place(state, device, job, need_on(device, job), contexts.taken(device, job))


def evaluate(state: State, job: Job) -> Placement:
    """Record every device that the job may use, as it is now."""
    return _record(state, job, candidates(state, job), ())


def recorded(state: State, job: Job, choice: PlacementChoice) -> Placement | None:
    """Record the best devices as they are before the job is placed, with the chosen ones; None: it is not kept."""
    if not state.records_placements:
        return None
    best = _best(state, job)
    further = [device for device in choice.devices if device not in best]
    return _record(state, job, [*best, *further], choice.devices)


def _best(state: State, job: Job) -> list[Device]:
    """Return the first `RECORDED` of `candidates`, or of those `LOOKED_AT` that the policy puts first."""
    if len(state.devices) <= LOOKED_AT or not state.placement.by_device:
        return candidates(state, job)[:RECORDED]
    order = device_order(state, job)
    able = (device for device in chain(order.idle(), order.in_use()) if may_use(device, job.requirements))
    first: list[Device] = []
    last: list[Device] = []
    for device in islice(able, LOOKED_AT):
        (last if reluctant(state, job, device) else first).append(device)
        if len(first) == RECORDED:
            break
    return (first + last)[:RECORDED]


def device_order(state: State, job: Job) -> DeviceOrder:
    """Return the order of devices as they are now; the job is any that the policy can be asked about."""
    state.device_order.look(state.devices, partial(_present_key, state, job), _basis(state))
    return state.device_order


def check_order(state: State, job: Job) -> None:
    """Check that each device whose place in the order is wrong has said that it has changed."""
    state.device_order.check(state.devices, partial(key_of, state, job), _basis(state))


def _basis(state: State) -> tuple[object, ...]:
    return (state.placement, state.policy, state.settings, state.host.cores)


def _present_key(state: State, job: Job, device: Device) -> Key:
    """Return the device's key as it is now: in a pass over the queue a view that was kept may be older."""
    if state.device_views is not None:
        state.device_views.pop(device.spec.id, None)
    return key_of(state, job, device)


def _record(state: State, job: Job, devices: Iterable[Device], chosen: tuple[Device, ...]) -> Placement:
    rows = tuple(_row(state, job, device, device in chosen) for device in devices)
    strict = bool(state.settings.placement_strict)
    return Placement(job.id, state.placement.name, strict, state.now, rows)


def _row(state: State, job: Job, device: Device, chosen: bool) -> DeviceRow:
    need, view = need_on(device, job), device_view(state, device)
    answer = None if chosen else on_device(state, device, job)
    condition = unmet(state, device, job, need)
    return DeviceRow(
        device.spec.id,
        chosen,
        None if answer is None or isinstance(answer, Place) else answer(),
        None if condition is None else condition(),
        device.free,
        need.total,
        margin_of(state.settings, device),
        view.jobs,
        view.warming,
        device.load,
        key_of(state, job, device),
        _slowdown_ppm(state, device, job),
    )


def _slowdown_ppm(state: State, device: Device, job: Job) -> int | None:
    """Return the largest slowdown known between the job and any job there, either way; None: none is known."""
    model, kind = device.model, job.spec.kind
    if not kind or not device.jobs or job.spec.needs_several or job.excludes:
        return None
    pairs = (pair for other in _beside(state, device, job) for pair in ((other, kind), (kind, other)))
    known = (state.slowdowns.slowdown_ppm((model, *pair), state.now) for pair in pairs)
    return max((ppm for ppm in known if ppm is not None), default=None)


def _beside(state: State, device: Device, job: Job) -> Iterator[str]:
    """Yield the kinds of the jobs there that would compute beside the job, each in its turn."""
    mine = [lane for number in device.lanes if (lane := state.lanes[number]).owner == job.spec.owner]
    if len(device.lanes) > 1 or may_open(state, device, sum(not lane.serves for lane in mine), len(mine)):
        others = (state.jobs[number] for number in device.jobs - {job.id})
        yield from (other.spec.kind for other in others if other.spec.kind and not other.excludes)
