"""Room for contexts: device memory that a job takes by using the device at all, beside all that it is granted.

A job gets its context with its first call, or an error: nothing can wait there.  So room is made before its process is
started.  Jobs are evicted for it as for other programs (`clearing`), and their memory is kept free until telemetry has
seen the context.  Its size is measured on the device's jobs (`JobContext`): it grows until a few iterations have been
seen, because modules are loaded at their first launch; of a service, a few turns.

A job that could then not have what it needs any more is not evicted: the newcomer waits until that job has left.
"""

from __future__ import annotations

from functools import partial

from carpool.core.events import ForeignMemory
from carpool.core.memory.eviction import make_plan
from carpool.core.memory.grants import freed
from carpool.core.memory.lanes import Refusal, largest_job, pinned
from carpool.core.model import JobId, Micros, Reason
from carpool.core.state.amounts import needed_in_all
from carpool.core.state.device import Device, JobContext
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.turns import weights
from carpool.core.units import format_size

#: A context is expected to be larger than any that was seen, by one part in so many: measurements are rounded.
MARGIN_FRACTION = 8


def begins(state: State, device: Device, job: Job) -> None:
    """Record that the context of a job that is being started is due.

    With the first memory on a device comes a context of Carpool's own.
    """
    if not _has(device, job):
        return
    due, present = device.context, _awaited(device)
    for context in present:
        context.alone = False
    device.contexts[job.id] = JobContext(due, alone=not present and device.promised > 0)
    device.changed()
    weights.give_way(state, device)


def ends(state: State, device: Device, job: Job) -> None:
    """Free what was kept for the context of a job that has left."""
    device.contexts.pop(job.id, None)
    device.changed()
    for context in _awaited(device):
        context.alone = False


def measured(state: State, device: Device, event: ForeignMemory) -> None:
    """Record the memory in use beside grants; what it has grown by is counted as part of the contexts still awaited.

    A job that has not attached has none yet: the growth is another's, or that of Carpool's own context.
    """
    before = _of_jobs(device)
    device.unmanaged, device.others, device.spare = event.size, event.others, event.spare
    more = _of_jobs(device) - before
    for number, context in device.contexts.items():
        if context.whole or not state.jobs[number].was_attached:
            continue
        context.alone &= more >= 0
        part = max(0, more if context.alone else min(more, context.due))
        context.due, context.seen, more = max(0, context.due - part), context.seen + part, more - part
    device.changed()
    for number in device.contexts:
        known(state, device, state.jobs[number])


def _awaited(device: Device) -> list[JobContext]:
    return [context for context in device.contexts.values() if not context.whole]


def _of_jobs(device: Device) -> int:
    """Bytes that jobs have beside their grants, but for a constant."""
    return device.unmanaged - device.others - device.spare


def turn_over(state: State, job: Job) -> None:
    """Count a turn of a service, which has no iterations, and may use too little device time, to be measured by."""
    device = state.device_of(job) if job.serves else None
    if device is not None and job.id in device.contexts:
        device.contexts[job.id].turns += 1
        known(state, device, job)


def known(state: State, device: Device, job: Job) -> None:
    """Take the context of a job that has been measured as complete, if it has been seen."""
    context = device.contexts.get(job.id)
    if context is None or context.whole or not context.seen:
        return
    if not job.measured and context.turns < state.settings.measured_after:
        return
    context.due, context.whole = 0, True
    if context.alone:
        device.context_seen = max(device.context_seen, context.seen + context.seen // MARGIN_FRACTION)
        state.has_contexts = True
    freed(state, device)


def settle(state: State, device: Device, before: Micros) -> Micros | None:
    """Release the memory kept for contexts of jobs started until ``before`` that have come, and return ``before``.

    If there are none, return the first later start of a job for whose context memory is kept; None: there is none.
    A context has come if telemetry has seen a part of it; or if telemetry sees contexts, and the job uses the device:
    its growth may have been counted as another job's, or be smaller than what telemetry tells apart.
    """
    starts = {number: state.jobs[number].started_us or 0 for number, kept in device.contexts.items() if kept.due}
    come = [number for number, start in starts.items() if start <= before and _has_come(state, device, number)]
    for number in come:
        device.contexts[number].due, device.contexts[number].whole = 0, True
    if come:
        freed(state, device)
        return before
    return min((start for start in starts.values() if start > before), default=None)


def _has_come(state: State, device: Device, number: JobId) -> bool:
    visible = device.context_seen > 0 or any(context.seen for context in device.contexts.values())
    return device.contexts[number].seen > 0 or (visible and state.jobs[number].used_device)


def crowded_out(device: Device, job: Job) -> bool:
    """Whether the job would find what it needs if only the contexts of others were not there."""
    most = min(device.usable + device.contexts_beside(job.id), device.spec.capacity)
    return device.usable < needed_in_all(job) <= most


def taken(device: Device, job: Job) -> int:
    """Bytes by which less of the device can be used once the job has been started there."""
    return device.left() - _left(device, job) if _has(device, job) else 0


def short(state: State, device: Device, job: Job) -> Refusal | None:
    """Return why the device has no room for one more job's context; None: it has, as an empty device always does."""
    if not device.jobs or not _has(device, job):
        return None
    if not _fit_beside(state, device, job):
        return partial(_no_room, state, device)
    return partial(_being_made, device) if device.promised > _left(device, job) else None


def expect(state: State, device: Device, job: Job) -> bool:
    """Have room made for the job's context, if that is all that the job lacks there; False: no room is being made."""
    missing = device.promised - _left(device, job)
    if missing <= 0 or device.expected is not None or not device.oversubscribed:
        return False
    if not _has(device, job) or not _fit_beside(state, device, job):
        return False
    if make_plan(state, device, None, missing, patient=True).enough:
        device.expected = job.id
        state.marked.add(device.spec.id)
    return device.expected == job.id


def forget(state: State, number: JobId) -> None:
    """Make no more room for the context of a job that has left the queue."""
    for device in state.marked_devices():
        if device.expected == number:
            device.expected = None
            state.touch_device(device.spec.id)


def _has(device: Device, job: Job) -> bool:
    """Whether the job gets a context that stays; a job that is suspended takes its context with it."""
    return device.context > 0 and not job.suspends


def _left(device: Device, job: Job) -> int:
    return device.left(context=0 if device.expected == job.id else device.context)


def _fit_beside(state: State, device: Device, job: Job) -> bool:
    """Whether each job of the device would still get the memory it needs, beside immovable memory and the new context.

    A suspended job that was never measured reports all of the device: such a need is left out.
    """
    jobs = [state.jobs[number] for number in device.jobs]
    largest = [largest_job(state, state.lanes[lane]) for lane in device.lanes]
    measured = [each.usage.persistent_live for each in jobs if each.suspends]
    largest += [size for size in measured if size < device.usable]
    return sum(map(pinned, jobs)) + max(largest, default=0) <= _left(device, job)


def _being_made(device: Device) -> Reason:
    text = f"waiting for {format_size(device.context)} of {device.spec.id} for its context: other jobs have to move out"
    return Reason("context", text)


def _no_room(state: State, device: Device) -> Reason:
    names = ", ".join(f"job {state.called(number)}" for number in sorted(device.jobs))
    text = f"{device.spec.id} has no room for one more context ({format_size(device.context)})"
    return Reason("context", f"{text} beside what {names} need{'s' if len(device.jobs) == 1 else ''}")
