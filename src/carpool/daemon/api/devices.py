"""Devices: their memory, lanes and jobs, and the controls that an administrator sets for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from carpool.core.model import DeviceId, JobPhase, LaneId, Oversubscribe
from carpool.core.policies.view import LaneView, View
from carpool.core.spelling import did_you_mean
from carpool.daemon.api.call import ApiCall
from carpool.daemon.api.context import Context
from carpool.daemon.api.visibility import visible_device
from carpool.daemon.config.limits import LARGEST
from carpool.daemon.jobs.info import moved_info
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.models import Control
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import RequestError
from carpool.daemon.telemetry.load_events import Known
from carpool.daemon.telemetry.service import TelemetryService
from carpool.devices.base import DeviceBackend, DeviceError
from carpool.options.requests import may_use
from carpool.protocol.api import (
    DeviceInfo,
    DeviceList,
    DeviceRequest,
    LaneInfo,
    LoadInfo,
    MeanInfo,
    ProcessInfo,
    StoreInfo,
    TelemetryInfo,
)
from carpool.protocol.units import format_size
from carpool.telemetry.samples import Sample, mean

MEANS = [name for name in MeanInfo.__struct_fields__ if name != "samples"]
#: Quantities that have the same name and form in `Sample` and `TelemetryInfo`.
SAME = {field.name for field in dataclasses.fields(Sample)} - {"taken_us", "level", "reason", "processes", "throttled"}
LONGEST_REASON = 256  # characters


async def devices(call: ApiCall) -> object:
    """Return all devices with their memory, lanes and load, and the host store."""
    context = call.context
    view = context.machine.view()
    infos = [_device_info(context, device, view) for device in context.seating.devices.values()]
    return DeviceList([visible_device(call.sight, info) for info in infos], _store_info(context))


async def put_device(call: ApiCall) -> object:
    """Change a device's controls; the change is durable, and in force at once."""
    context = call.context
    call.require_admin("change a device")
    device = find_device(context, call.path("device"))
    wanted = await call.body(DeviceRequest)
    changes = _checked(wanted, call.who.uid) | _reserve(wanted, device)
    if changes:
        await context.controls.change(device.id, lambda control: msgspec.structs.replace(control, **changes))
    return _device_info(context, device, context.machine.view())


def find_device(context: Context, name: str) -> DeviceBackend:
    """Return the device with this name.  Raises RequestError 404."""
    known = context.seating.devices
    if name not in known:
        hint = f"{did_you_mean(name, known)}known: {', '.join(known)}"
        raise RequestError(404, "unknown_device", f"there is no device {name!r}", hint)
    return known[name]


def _checked(wanted: DeviceRequest, uid: int) -> dict[str, int | str | Oversubscribe | None]:
    """Return the fields of a `Control` that change, with values.  Raises RequestError 400.  ``uid``: the caller's."""
    changes: dict[str, int | str | Oversubscribe | None] = {}
    if len(wanted.drain_reason) > LONGEST_REASON:
        text = f"the reason has {len(wanted.drain_reason)} characters; {LONGEST_REASON} are allowed"
        raise RequestError(400, "bad_reason", text, "choose a shorter one")
    if wanted.drain is not msgspec.UNSET:
        changes |= {"drained_by": uid if wanted.drain else None, "drain_reason": wanted.drain_reason}
    if wanted.quantum_us is not msgspec.UNSET:
        if wanted.quantum_us is not None and not 0 <= wanted.quantum_us <= LARGEST:
            text = f"quantum_us is {wanted.quantum_us}; it must be between 0 and {LARGEST}"
            raise RequestError(400, "bad_quantum", text, "null: the value in the settings, or the policy's")
        changes["quantum_us"] = wanted.quantum_us
    if wanted.oversubscribe is not msgspec.UNSET:
        changes["oversubscribe"] = _oversubscribe(wanted.oversubscribe)
    return changes


def _reserve(wanted: DeviceRequest, device: DeviceBackend) -> dict[str, int | str | Oversubscribe | None]:
    """Return the change of the device's reserve, if there is one.  Raises RequestError 400."""
    if wanted.reserve_bytes is msgspec.UNSET:
        return {}
    if wanted.reserve_bytes is not None and not 0 <= wanted.reserve_bytes <= device.capacity:
        text = f"the reserve is {wanted.reserve_bytes} bytes, and {device.id} has {format_size(device.capacity)}"
        raise RequestError(400, "bad_reserve", text, "choose one between 0 and the size of the device")
    return {"reserve": wanted.reserve_bytes}


def _oversubscribe(text: str) -> Oversubscribe:
    try:
        return Oversubscribe(text)
    except ValueError:
        choices = ", ".join(Oversubscribe)
        raise RequestError(400, "bad_oversubscribe", f"oversubscribe is {text!r}", f"choose one of {choices}") from None


def _device_info(context: Context, device: DeviceBackend, whole: View) -> DeviceInfo:
    view, control = whole.devices[device.id], context.controls.of(device.id)
    present = [job for _, job in sorted(context.jobs.live.items()) if device.id in (job.device, *job.other_devices)]
    jobs = [job for job in present if job.device == device.id]  # the others are seated elsewhere
    lanes = _lane_infos(context, device, whole)
    granted = sum(lane.size_bytes for lane in lanes) + sum(job.granted.persistent for job in jobs)
    return DeviceInfo(
        id=device.id,
        kind=device.kind,
        uuid=device.uuid or "",
        capacity_bytes=device.capacity,
        granted_bytes=granted,
        used_bytes=device.used_bytes(),
        left_bytes=device.left_bytes({job.bank: job.granted.persistent for job in jobs if job.bank is not None}),
        free_bytes=max(0, device.capacity - view.foreign - granted),
        lanes=lanes,
        jobs=[job.id for job in present],
        queue=_queue(context, device),
        quantum_us=view.quantum_us,
        quantum_from=_quantum_from(context, control),
        oversubscribe=view.oversubscribe.value,
        stored_bytes=sum(job.usage.stored for job in jobs),
        moved=moved_info([job.usage for job in jobs]),
        telemetry=telemetry_info(context.telemetry, device.id),
        sharing=view.sharing.value,
        alone=view.alone,
        weights_bytes=view.weights,
        drained=control.drained,
        reserve_bytes=control.reserve,
    )


def _lane_size(device: DeviceBackend, lane: LaneId) -> int:
    """Return the size of a lane in bytes; 0 while the lane is not open."""
    try:
        return device.lane_size(lane)
    except DeviceError:
        return 0


def _queue(context: Context, device: DeviceBackend) -> list[int]:
    return [
        number
        for number, job in sorted(context.jobs.live.items())
        if job.phase is JobPhase.QUEUED and may_use(job.spec, device.id)
    ]


def _quantum_from(context: Context, control: Control) -> str:
    if control.quantum_us is not None:
        return "device"
    return "policy" if context.settings.current.quantum_us is None else "settings"


def _lane_infos(context: Context, device: DeviceBackend, whole: View) -> list[LaneInfo]:
    lanes = (lane for lane, where in sorted(context.seating.lane_device.items()) if where == device.id)
    return [_lane_info(context, device, lane, whole.lanes.get(lane)) for lane in lanes]


def _lane_info(context: Context, device: DeviceBackend, lane: LaneId, view: LaneView | None) -> LaneInfo:
    """Describe a lane.  ``view``: the core's view of it; None: the core does not know the lane yet, or no longer."""
    jobs = [job for _, job in sorted(context.jobs.live.items()) if job.lane == lane]
    return LaneInfo(
        id=lane,
        owner=jobs[0].owner if jobs else context.uid,
        size_bytes=_lane_size(device, lane),
        jobs=[job.id for job in jobs],
        holder=context.seating.holder.get(lane),
        waiting=_waiting(jobs, view),
    )


def _waiting(jobs: Sequence[JobRecord], view: LaneView | None) -> list[int]:
    """Return the jobs that wait for the turn: from the seats, which know before the core; in the core's order."""
    waiting = [job.id for job in jobs if job.seated and job.seated.seat.get("want") and not job.seated.seat.get("turn")]
    order = () if view is None else (view.successor, *view.waiting)
    return sorted(waiting, key=lambda job: order.index(job) if job in order else len(order))


def _store_info(context: Context) -> StoreInfo:
    budget, jobs = context.settings.current.host_store, context.jobs.live.values()
    return StoreInfo(
        budget_bytes=context.options.default_store if budget is None else budget,
        default=budget is None,
        kept_bytes=sum(job.usage.kept for job in jobs if job.seated),
        used_bytes=sum(job.usage.stored for job in jobs),
    )


def telemetry_info(telemetry: TelemetryService, device: DeviceId) -> TelemetryInfo:
    """Return what is measured on a device now, and the means of the last window."""
    state, samples = telemetry.state(device), telemetry.recent(device)
    means: dict[str, Any] = {name: mean(samples, name) for name in MEANS}
    return TelemetryInfo(
        level=state.level.value,
        reason=state.reason,
        taken_us=None if state.age_us is None else wall_us() - state.age_us,
        age_us=state.age_us,
        interval_us=telemetry.interval_us,
        load=_load(telemetry.load(device)),
        mean=MeanInfo(len(samples), **means),
        **_quantities(state.sample),
    )


def _load(known: Known | None) -> LoadInfo | None:
    if known is None or known.load is None:
        return None
    return LoadInfo(**dataclasses.asdict(known.load), degraded=known.why)


def _quantities(sample: Sample | None) -> dict[str, Any]:
    if sample is None:
        return {}
    known = {name: getattr(sample, name) for name in SAME}
    if sample.processes is not None:
        known["processes"] = [ProcessInfo(each.pid, each.used_bytes, each.owner) for each in sample.processes]
    return known | {"throttled": None if sample.throttled is None else list(sample.throttled)}
