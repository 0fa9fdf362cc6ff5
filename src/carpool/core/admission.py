"""The queue: who is placed next, where, and who has waited so long that a device is kept for it."""

from __future__ import annotations

from bisect import bisect_left, insort
from functools import partial

from carpool.core import alone
from carpool.core.commands import StartJob
from carpool.core.guests import suspends
from carpool.core.lanes import Place, Refusal, enter, find_place
from carpool.core.memory import reserve
from carpool.core.model import DeviceId, Engine, JobId, JobPhase, Memory, Reason
from carpool.core.snapshot import job_view, lazy_view
from carpool.core.state import NOTHING, Device, Job, State
from carpool.core.text import size

#: What decides whether a job fits: owner, device it insists on, is its memory known, is it exclusive, engine, P and E.
Kind = tuple[int, DeviceId | None, bool, bool, Engine, int, int]


def kind_of(job: Job) -> Kind:
    need = need_of(job)
    spec = job.spec
    return (spec.owner, spec.device, job.known, spec.exclusive, spec.engine, need.persistent, need.ephemeral)


def need_of(job: Job) -> Memory:
    """What is reserved for a job when it is placed: for one that is suspended between its turns, nothing yet."""
    return NOTHING if suspends(job) else job.estimate


def enqueue(state: State, job: Job) -> None:
    """The job may be placed from now on."""
    insort(state.queue, _entry(state, job))
    if not state.not_passed or state.not_passed[-1].arrival < job.arrival:
        state.not_passed.append(job)
    else:  # it was not ready when it came
        state.not_passed = type(state.not_passed)(sorted([*state.not_passed, job], key=lambda one: one.arrival))
    state.newcomers.append(job.id)
    state.kinds[kind_of(job)] += 1


def _entry(state: State, job: Job) -> tuple[tuple[int, ...], int, JobId]:
    return (state.policy.admission_key(lazy_view(state), job_view(state, job)), job.arrival, job.id)


def dequeue(state: State, job: Job) -> None:
    entry = _entry(state, job)
    index = bisect_left(state.queue, entry)
    if index == len(state.queue) or state.queue[index] != entry:
        index = next((i for i, present in enumerate(state.queue) if present[2] == job.id), -1)
    if index < 0:
        return
    del state.queue[index]
    kind = kind_of(job)
    state.kinds[kind] -= 1
    if not state.kinds[kind]:
        del state.kinds[kind]
    state.timers.cancel(("reserve", job.id))
    if job.id in state.due:
        state.due.remove(job.id)
    for device in state.devices.values():
        if device.reservation == job.id:
            device.reservation = None
            state.admit_all = True


def reorder(state: State) -> None:
    """Another policy has other keys."""
    state.queue = sorted(_entry(state, state.jobs[number]) for _, _, number in state.queue)
    state.admit_all = True


def closed(state: State, device: Device, job: Job) -> Refusal | None:
    """Why nothing at all, or no job like this one, may be placed on the device now."""
    name = device.spec.id
    if device.reservation not in (None, job.id):
        text = f"{name} is kept for job {device.reservation}, which has waited too long"
        return partial(Reason, "reserved", text)
    if device.alone is not None:
        return partial(alone.has_it, state, device)
    if job.spec.exclusive and device.jobs:
        return partial(_not_empty, device)
    if device.short is not None and not device.oversubscribed:
        return partial(Reason, "short", f"job {device.short} waits for memory of {name}, and comes first")
    if not job.known and len(device.warm) >= state.settings.warm_limit:
        text = f"{len(device.warm)} started jobs of {name} have not been measured yet"
        return partial(Reason, "warm", text)
    return None


def _not_empty(device: Device) -> Reason:
    others = ", ".join(f"job {number}" for number in sorted(device.jobs))
    return Reason("exclusive", f"waiting for {device.spec.id} to itself: {others} there")


def candidates(state: State, job: Job) -> list[Device]:
    """Devices the job may use, the one with most free memory first, then the one with fewest jobs."""
    able = {name: device for name, device in state.devices.items() if device.spec.checkpoint or not suspends(job)}
    if job.spec.device is not None:
        device = able.get(job.spec.device)
        return [device] if device is not None else []
    ranked = [(-device.free, len(device.jobs), name, device) for name, device in able.items()]
    return [device for *_, device in sorted(ranked)]  # names differ: devices are never compared


def attempt(state: State, job: Job, open_devices: set[DeviceId]) -> tuple[Device, Place] | Refusal:
    """The first device that takes the job; or why none does (as the first one says)."""
    refusal: Refusal | None = None
    for device in candidates(state, job):
        if device.spec.id not in open_devices:
            continue
        answer = closed(state, device, job) or find_place(state, device, job, need_of(job))
        if isinstance(answer, Place):
            return device, answer
        refusal = refusal or answer
    return refusal or partial(Reason, "no_device", "there is no device yet that the job may use")


def admit(state: State) -> None:
    """Place whoever can be placed.  Only newcomers are tried if nothing has become free since the last time."""
    if not state.queue:
        state.admit_all, state.newcomers = False, []
        return
    if state.admit_all or not state.backfill:
        order = _kept_first(state)
    else:
        order = sorted(state.newcomers, key=lambda number: state.jobs[number].arrival)
    state.admit_all, state.newcomers = False, []
    open_devices = set(state.devices)
    hopeful = set(state.kinds)
    for number in order:
        job = state.jobs[number]
        kind = kind_of(job)
        if job.phase is not JobPhase.QUEUED or kind not in hopeful:
            continue
        answer = attempt(state, job, open_devices)
        if isinstance(answer, tuple):
            _place(state, job, *answer)
        elif state.backfill:
            hopeful -= {other for other in hopeful if _asks_as_much(other, kind)}
        else:
            open_devices -= {device.spec.id for device in candidates(state, job)}
        if not hopeful or not open_devices:
            break
    reserve_devices(state)


def _kept_first(state: State) -> list[JobId]:
    """The queue; but jobs for which a device is kept go before all others."""
    kept = [device.reservation for device in state.devices.values() if device.reservation is not None]
    return [*kept, *(number for _, _, number in state.queue)]


def _asks_as_much(other: Kind, turned_away: Kind) -> bool:
    """Whether jobs of one kind need not be tried after one of another kind has been turned away.

    Long queues are mostly alike; so one look at each kind is enough.
    """
    same = other[:5] == turned_away[:5]
    return same and other[5] >= turned_away[5] and other[6] >= turned_away[6]


def _place(state: State, job: Job, device: Device, place: Place) -> None:
    need = NOTHING if place.crowded else need_of(job)
    dequeue(state, job)
    job.phase, job.device, job.started_us, job.placed = JobPhase.STARTING, device.spec.id, state.now, state.number()
    device.jobs.add(job.id)
    if suspends(job):
        device.guests.add(job.id)
    if job.spec.exclusive:
        alone.claim(state, device, job)
    lane = enter(state, job, device, place, need)
    reserve(state, job, need)
    state.emit(StartJob(job.id, device.spec.id, lane.id))
    if not job.known:
        device.warm.add(job.id)
    state.timers.set(("warm", job.id), state.now + state.settings.warm_timeout_us)
    _passed_over(state, job)


def _passed_over(state: State, placed: Job) -> None:
    """Everybody who came before ``placed`` and still waits has been overtaken."""
    waiting = state.not_passed
    while waiting and waiting[0].arrival <= placed.arrival:
        job = waiting.popleft()
        if job.phase is JobPhase.QUEUED:
            job.passed_over_us = state.now
            state.timers.set(("reserve", job.id), state.now + state.settings.reserve_after_us)


def overdue(state: State, job: Job) -> None:
    """The job has been passed over for too long."""
    state.due.append(job.id)
    state.due.sort(key=lambda number: state.jobs[number].arrival)
    reserve_devices(state)


def reserve_devices(state: State) -> None:
    """Keep a device for each overdue job, as far as there are devices; first come first."""
    for number in tuple(state.due):
        job = state.jobs[number]
        for device in candidates(state, job):
            if device.reservation is None and need_of(job).total <= device.spec.capacity:
                device.reservation = number
                state.due.remove(number)
                state.admit_all = True
                break


def explain_queued(state: State, job: Job) -> Reason:
    """Why a queued job has not been placed."""
    if job.unmet:
        return Reason("after", "waiting for " + ", ".join(f"job {number}" for number in sorted(job.unmet)))
    if state.restarting:
        return Reason("restart", "the daemon has just been restarted and looks at what is running")
    answer = attempt(state, job, set(state.devices))
    if not isinstance(answer, tuple):
        return answer()
    first = state.jobs[state.queue[0][2]]
    return Reason("order", f"waiting behind job {first.id}, which {state.policy.name} places first")


def impossible(state: State, job: Job) -> Reason | None:
    """Why the job could never run, as far as its estimate tells."""
    if job.spec.gang > 1:
        return Reason("gang", f"needs {job.spec.gang} devices at once, but lanes hold jobs of one device")
    if not state.devices:
        return None
    devices = candidates(state, job)
    if not devices and suspends(job) and job.spec.device in (None, *state.devices):
        where = "no device here" if job.spec.device is None else f"{job.spec.device} has no driver that"
        return Reason("no_checkpoint", f"engine checkpoint: {where} can suspend processes")
    if not devices:
        known = ", ".join(sorted(state.devices))
        return Reason("unknown_device", f"there is no device {job.spec.device!r}; devices: {known}")
    largest = max(devices, key=lambda device: device.spec.capacity)
    need = need_of(job)
    if need.total > largest.spec.capacity:
        where = f"{largest.spec.id} holds" if job.spec.device else f"the largest device, {largest.spec.id}, holds"
        return Reason("too_large", f"needs {size(need.total)}, but {where} {size(largest.spec.capacity)}")
    return None
