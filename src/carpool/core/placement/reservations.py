"""Devices that are kept for jobs that have waited too long, or have run out of memory.

For a multi-device job those that are idle are kept at once, and one more that is to become idle; only one job at a time
may have some kept for it but not all.
"""

from __future__ import annotations

from bisect import insort

from carpool.core.model import JobId, Micros
from carpool.core.placement.candidates import candidates, may_be_kept
from carpool.core.placement.filters.gang import first_of_several
from carpool.core.placement.filters.reserved import kept_for
from carpool.core.placement.filters.user_limits import has_limits, over_limit, precedence
from carpool.core.placement.needs import allowed, fits
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State, require

#: A limit that keeps a job from being placed is looked at again no sooner than this.
LOOK_US: Micros = 1_000_000


def overdue(state: State, job: Job) -> None:
    """Treat a job as overdue that was passed over for too long, or has run out of memory; once only.

    A job that a limit of its user keeps from being placed is looked at again later: others have not held it up, but for
    later jobs of its own user or group.
    """
    if job.id in state.due or kept_for(state, job):
        return
    if over_limit(state, job) is not None:
        if _overtaken(state, job):
            state.claims.add(job.id)
        state.timers.set(("reserve", job.id), state.now + max(LOOK_US, state.settings.reserve_after_us))
        return
    _put_due(state, job)
    reserve_devices(state)


def _overtaken(state: State, job: Job) -> bool:
    """Whether a later job under the same limit runs, and no earlier one claims the next place already."""
    running = (state.jobs[number] for device in state.devices.values() for number in device.jobs)
    claiming = (state.jobs[number] for number in state.claims)
    later = any(_share_a_limit(other, job) and precedence(job) < precedence(other) for other in running)
    return later and not any(_share_a_limit(other, job) for other in claiming)


def _share_a_limit(job: Job, other: Job) -> bool:
    return job.spec.account == other.spec.account or (job.spec.group != "" and job.spec.group == other.spec.group)


def _put_due(state: State, job: Job) -> None:
    state.claims.add(job.id)
    if job.id not in state.due:  # a job for several devices stays there until all of them are kept for it
        insort(state.due, job.id, key=lambda number: state.jobs[number].arrival)


def reserve_devices(state: State) -> None:
    """Keep a device for each overdue job, as far as there are devices; first come first."""
    for number in tuple(state.due):
        job = state.jobs[number]
        if job.spec.needs_several:
            gather(state, job)
            continue
        for device in candidates(state, job):
            if device.reservation is None and may_be_kept(state, device, job):
                _keep(state, device, job)
                state.due.remove(number)
                break


def gather_first(state: State) -> None:
    """Keep devices for the multi-device job that has some kept, or else for the first one that has waited too long."""
    first = state.gathering
    if first is None:
        first = first_of_several(state)
    if first is not None:
        gather(state, state.jobs[first])


def gather(state: State, job: Job) -> None:
    """Keep devices for a multi-device job that has waited too long: idle ones, and one that is to become so."""
    if state.gathering not in (None, job.id):
        return
    able = _able(state, job)
    if len(able) < job.spec.gang:  # for now, others have too many, or memory of them, however many become idle
        _release(state, job)
        return
    kept = [device for device in able if device.reservation == job.id]
    more = _wanted(able, kept, job.spec.gang)
    for device in more:
        _keep(state, device, job)
    count = len(kept) + len(more)
    complete = count >= job.spec.gang
    state.gathering = job.id if count and not complete else None
    if complete and job.id in state.due:
        state.due.remove(job.id)


def _able(state: State, job: Job) -> list[Device]:
    """Return the devices that may be kept for a multi-device job, best first."""
    devices = (device for device in candidates(state, job) if may_be_kept(state, device, job))
    return [device for device in devices if not _another_gangs(state, device, job)]


def _wanted(able: list[Device], kept: list[Device], count: int) -> list[Device]:
    """Return the devices to keep beside ``kept``: idle ones and, if none is becoming idle yet, one that is not."""
    others = [device for device in able if device.reservation is None]
    idle = [device for device in others if device.idle][: max(0, count - len(kept))]
    if len(kept) + len(idle) >= count or not all(device.idle for device in kept):
        return idle
    return idle + [device for device in others if not device.idle][:1]


def _another_gangs(state: State, device: Device, job: Job) -> bool:
    """Whether another multi-device job has the device, or is to have it.

    Such devices come free together.  To empty one more until then would leave it idle for as long as that job takes.
    """
    others = {device.exclusive_holder, device.reservation} - {None, job.id}
    return any(state.jobs[number].spec.needs_several for number in others if number is not None)


def drop(state: State, job: Job) -> None:
    """Release all that is kept for a job that does not wait any more."""
    if job.id in state.due:
        state.due.remove(job.id)
    state.claims.discard(job.id)
    _release(state, job)


def _keep(state: State, device: Device, job: Job) -> None:
    device.reservation = job.id
    state.marked.add(device.spec.id)
    state.claims.add(job.id)
    state.admit_all = True


def _release(state: State, job: Job) -> None:
    """Release the devices that are kept for the job."""
    if state.gathering == job.id:
        state.gathering = None
    for device in kept_for(state, job):
        device.reservation = None
        state.admit_all = True


def review(state: State) -> None:
    """Release devices kept for jobs that do not fit there any more, even alone; these are overdue as before.

    Others have taken of such a device, or the job's estimate is larger, or its user may not be there.
    """
    for device in state.marked_devices():
        if device.reservation is None:
            continue
        job = state.jobs[device.reservation]
        if not may_be_kept(state, device, job):
            _release(state, job)
            _put_due(state, job)
    if state.gathering is not None:
        gather(state, state.jobs[state.gathering])
    _review_claims(state)


def _review_claims(state: State) -> None:
    """Let one job of each user and group claim a place, as long as it could fit somewhere by itself."""
    before, state.claims = state.claims, set()
    if has_limits(state.settings):
        reserved = {device.reservation for device in state.marked_devices()} - {None}
        waiting = (state.jobs[number] for number in before | reserved | {*state.due} if number is not None)
        state.claims = _first_of_each(state, sorted(waiting, key=precedence))
    state.admit_all |= bool(before - state.claims)


def _first_of_each(state: State, jobs: list[Job]) -> set[JobId]:
    first: dict[tuple[int, str], JobId] = {}
    for job in jobs:
        key = job.spec.account, job.spec.group
        if key not in first and _could_fit(state, job):
            first[key] = job.id
    return set(first.values())


def _could_fit(state: State, job: Job) -> bool:
    return sum(fits(device, job) for device in allowed(state, job.requirements)) >= job.spec.gang


def check(state: State) -> None:
    """Check that at most one job waits with a part of its devices kept for it."""
    for number in {device.reservation for device in state.devices.values()} - {None, state.gathering}:
        assert number is not None
        job, kept = state.jobs[number], len(kept_for(state, state.jobs[number]))
        require(kept == job.spec.gang, f"{kept} devices are kept for it, and it is not its turn to wait so", job)
