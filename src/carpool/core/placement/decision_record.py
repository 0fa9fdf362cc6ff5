"""Records of what a placement was decided on: for jobs that are placed, and for others on request."""

from __future__ import annotations

from carpool.core.decision import DeviceRow, Placement
from carpool.core.memory.lanes import Place
from carpool.core.metering.views import device_view
from carpool.core.placement.candidates import PlacementChoice, candidates, key_of, need_on, on_device
from carpool.core.placement.collocation import margin_of, unmet
from carpool.core.placement.interference import worst_ppm
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
        worst_ppm(state, device, job),
    )
