"""Records of what a placement was decided on: for jobs that are placed, and for others on request."""

from __future__ import annotations

from collections.abc import Iterator

from carpool.core.decision import DeviceRow, Placement
from carpool.core.memory.lanes import Place, may_open
from carpool.core.metering.views import device_view
from carpool.core.placement.candidates import PlacementChoice, candidates, key_of, on_device
from carpool.core.placement.filters.collocation import margin_of, unmet
from carpool.core.placement.needs import need_on
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State


def evaluate(state: State, job: Job, choice: PlacementChoice | None = None) -> Placement:
    """Record every device that the job may use, as it is now.  ``choice``: where the job is going to be placed."""
    chosen = () if choice is None else choice.devices
    rows = tuple(_row(state, job, device, device in chosen) for device in candidates(state, job))
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
    if not kind or job.spec.needs_several or job.excludes:
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
