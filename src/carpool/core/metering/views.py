"""Making immutable views from the state."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from carpool.core.metering.placing_order import placing_order
from carpool.core.metering.usage import attained, iterations_total, remaining, restore_us, virtual
from carpool.core.model import JobId, LaneId, Memory, MemoryClass, Micros
from carpool.core.policies.view import DeviceView, JobView, LaneView, LazyMap, View
from carpool.core.state.device import Device, Lane, YieldAsked
from carpool.core.state.job import Job
from carpool.core.state.seat_states import PreemptState, TurnState
from carpool.core.state.state import State

FOR_GOOD = -1
#: Looked up once: a view is made in every decision.
_HOLDING, _WAITING = TurnState.HOLDING, TurnState.WAITING


def job_view(state: State, job: Job) -> JobView:
    """Return the view of a job, cached until the job changes; that of a job that computes, for this moment only."""
    if job.cached is not None and job.cached_us in (FOR_GOOD, state.now):
        return job.cached
    made = _make(state, job) if job.cached is None else _moved(state, job, job.cached)
    # Straight into the dictionary: neither drops the view, nor concerns the device.
    job.__dict__.update(cached=made, cached_us=state.now if made.holder or made.devices else FOR_GOOD)
    return made


def _make(state: State, job: Job) -> JobView:
    """Make a view in the order of its fields: names would double the cost of what the core does most often."""
    total = attained(state, job)
    spec, turn = job.spec, job.turn
    place = (job.device, job.lane, spec.gang, job.devices)
    memory = (job.limit, job.reserved, bool(job.pending), _requested(job))
    away = (job.residency.aside, _reload_us(state, job), job.idle_since_us)
    seat = (job.attached, *away, job.measured, turn.state is _HOLDING)
    wish = (True, job.wanted_us, turn.urgent) if turn.state is _WAITING else (False, None, turn.urgent)
    figures = (job.usage, total, job.iteration_us, iterations_total(job), remaining(job, total), virtual(job, total))
    who = (job.id, spec.name, spec.owner, spec.weight, job.arrival, job.phase, job.outcome)
    traits = (job.found_exclusive, job.pinned)
    moments = (job.submitted_us, job.started_us)
    return JobView._make((*who, *place, *memory, *seat, *wish, *figures, *moments, job.reason, *traits))


#: Where the figures are that move with the clock: attained, (iteration, iterations in total,) remaining, virtual.
_FIGURES = JobView._fields.index("attained_us")


def _moved(state: State, job: Job, before: JobView) -> JobView:
    """Return the view a little later, when nothing but time has passed for the job."""
    total = attained(state, job)
    still = (before.iteration_us, before.iterations_total)
    moved = (total, *still, remaining(job, total), virtual(job, total))
    return JobView._make((*before[:_FIGURES], *moved, *before[_FIGURES + len(moved) :]))


def _reload_us(state: State, job: Job) -> Micros:
    device = state.device_of(job)
    if device is None:
        return 0
    return restore_us(device, job.carried(max(job.limit.persistent, job.residency.stored.persistent)))


def _requested(job: Job) -> Memory | None:
    if not job.pending:
        return None
    persistent, ephemeral = (job.pending.get(kind) for kind in (MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL))
    return Memory(persistent.total if persistent else 0, ephemeral.total if ephemeral else 0)


def lane_view(lane: Lane) -> LaneView:
    """Return the view of a lane for policies and the daemon."""
    return LaneView(
        lane.id,
        lane.device,
        lane.owner,
        lane.size,
        tuple(sorted(lane.jobs)),
        lane.holder,
        lane.successor,
        tuple(key[-1] for key in lane.queue),
        lane.yield_asked is not YieldAsked.NO,
        lane.preempt.state is PreemptState.PAUSED,
    )


def device_view(state: State, device: Device) -> DeviceView:
    """Return the view of a device.  During a pass over the queue views are kept until a job is placed."""
    kept = state.device_views
    if kept is None:
        return _device_view(state, device)
    name = device.spec.id
    if name not in kept:
        kept[name] = _device_view(state, device)
    return kept[name]


def _device_view(state: State, device: Device) -> DeviceView:
    return DeviceView(
        device.spec.id,
        device.spec.capacity,
        device.free,
        device.persistent,
        tuple(sorted(device.lanes)),
        tuple(sorted(device.jobs)) or tuple(use.job for use in device.exclusive_to),
        device.grower,
        device.reservation,
        device.spec.max_lanes,
        device.spec.oversubscribe,
        tuple(sorted(number for number in device.jobs if state.jobs[number].offloaded)),
        state.quanta[device.spec.id],
        device.spec.capacity - device.usable,
        device.spec.sharing,
        device.exclusive_holder,
        device.position,
        device.last_placed,
        tuple(sorted(device.warming_up)),
        device.measured,
        device.load,
        device.weight_bytes,
    )


def lazy_view(state: State) -> View:
    """Return the view for policies, of which nothing is made that is not looked at; one serves every moment."""
    kept = state.lazy
    if kept is not None and kept.settings is state.settings:
        if kept.now != state.now:
            object.__setattr__(kept, "now", state.now)  # policies keep no views: one object serves every moment
        return kept

    state.lazy = View(state.now, state.settings, *_lazy_maps(state), state.quanta, policy=state.settings.policy)
    return state.lazy


Maps = tuple[Mapping[JobId, JobView], Mapping[LaneId, LaneView], Mapping[str, DeviceView]]


def _lazy_maps(state: State) -> Maps:
    if state.lazy is not None:
        return state.lazy.jobs, state.lazy.lanes, state.lazy.devices

    def one_job(number: JobId) -> JobView:
        return job_view(state, state.jobs[number])

    def one_lane(number: LaneId) -> LaneView:
        return lane_view(state.lanes[number])

    def one_device(name: str) -> DeviceView:
        return device_view(state, state.devices[name])

    return LazyMap(state.jobs, one_job), LazyMap(state.lanes, one_lane), LazyMap(state.devices, one_device)


def full_view(state: State) -> View:
    """Return a snapshot for the daemon, which does not change any more."""
    return View(
        state.now,
        state.settings,
        MappingProxyType({number: job_view(state, job) for number, job in sorted(state.jobs.items())}),
        MappingProxyType({number: lane_view(lane) for number, lane in sorted(state.lanes.items())}),
        MappingProxyType({name: device_view(state, device) for name, device in sorted(state.devices.items())}),
        MappingProxyType(dict(state.quanta)),
        tuple(placing_order(state)),
        state.settings.policy,
    )
