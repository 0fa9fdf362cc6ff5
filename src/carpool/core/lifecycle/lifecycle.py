"""A job's beginning and end, and what follows from them for others."""

from __future__ import annotations

from carpool.core.allocators import whole_devices
from carpool.core.commands import EndJob, RetryJob, SignalJob
from carpool.core.events import Detached, ProcessExited, Submitted, TraitsSeen
from carpool.core.lifecycle import retry
from carpool.core.memory import exclusive, grants, lanes, preemption, requests, suspension
from carpool.core.metering import co_runners, warmup
from carpool.core.model import Engine, JobPhase, JobSpec, Outcome, Reason
from carpool.core.placement import gangs, queue
from carpool.core.state.job import Job
from carpool.core.state.state import KEPT_ENDED, State
from carpool.core.turns import turns, weights
from carpool.core.turns.exclusive_turns import touch_lanes

SIGKILL, SIGTERM = 9, 15


def check_spec(spec: JobSpec) -> None:
    """Raises ValueError for a submission that makes no sense."""
    if spec.weight < 1:
        raise ValueError(f"weight is {spec.weight}; it must be at least 1")
    if spec.gang < 1:
        raise ValueError(f"gang is {spec.gang}; a job needs at least 1 device")
    if spec.device is not None and not spec.device:
        raise ValueError("the job may use no device at all")
    if spec.iterations is not None and spec.iterations < 1:
        raise ValueError(f"iterations is {spec.iterations}; it must be at least 1")
    if spec.duration_us is not None and spec.duration_us < 1:
        raise ValueError(f"duration_us is {spec.duration_us}; it must be at least 1")
    if spec.service is not None and (spec.gang > 1 or spec.exclusive or spec.engine is not Engine.GRANT):
        raise ValueError("a service shares its device by grant: it cannot be exclusive, nor have several devices")
    if spec.retries < 0:
        raise ValueError(f"retries is {spec.retries}; it must be at least 0")
    if spec.estimate is not None and min(spec.estimate.memory.persistent, spec.estimate.memory.ephemeral) < 0:
        raise ValueError(f"the memory estimate {spec.estimate.memory} is negative")


def submit(state: State, event: Submitted) -> Job:
    spec = retry.spec_after(event.spec, event.past)
    job = Job(event.job, spec, state.arrivals, state.now - event.waited_us)
    job.trusted = bool(state.settings.use_estimates)
    state.arrivals += 1
    state.jobs[job.id] = job
    if event.past:
        job.past = event.past
    impossible = queue.impossible if state.whole is None else whole_devices.impossible
    reason = impossible(state, job) or _dependencies(state, job)
    if reason is not None:
        outcome = Outcome.FAILED if event.past else Outcome.REFUSED
        end(state, job, outcome, reason=retry.story(job.past, reason))
    elif not job.unmet:
        _enqueue(state, job)
    return job


def _enqueue(state: State, job: Job) -> None:
    if state.whole is not None:
        whole_devices.enqueue(state, job)
    else:
        queue.enqueue(state, job)


def _dependencies(state: State, job: Job) -> Reason | None:
    """Note what the job waits for; a reason if that cannot come true any more."""
    for number in job.spec.after:
        other = state.jobs.get(number)
        outcome = state.forgotten.get(number) if other is None else other.outcome
        if other is job or (other is None and outcome is None):
            return Reason("dependency_unknown", f"it waits for job {number}, which does not exist")
        if outcome is None:
            job.unmet |= {number}
            state.dependents.setdefault(number, []).append(job.id)
        elif outcome is not Outcome.SUCCEEDED:
            return Reason("dependency_failed", f"job {number}, which it waits for, ended: {outcome}")
    return None


def end(
    state: State,
    job: Job,
    outcome: Outcome,
    *,
    code: int | None = None,
    signal: int | None = None,
    reason: Reason | None = None,
) -> None:
    """The job is over.  Its turn, its memory and its place are free when this returns."""
    if job.phase is JobPhase.QUEUED and state.whole is None:
        queue.dequeue(state, job)
    state.emit(EndJob(job.id, outcome, code, signal, reason))
    job.set(phase=JobPhase.ENDED, outcome=outcome, reason=reason, attached=False)
    _leave(state, job)
    state.timers.cancel(("reserve", job.id))
    if job.cancelled:
        state.timers.cancel(("kill", job.id))
    _tell_dependents(state, job)
    _forget(state, job)


def _forget(state: State, job: Job) -> None:
    """The job is one of those that ended last; the one that ended longest ago is forgotten, all but its outcome."""
    state.ended.append(job.id)
    if len(state.ended) > KEPT_ENDED:
        oldest = state.ended.popleft()
        outcome = state.jobs.pop(oldest).outcome
        assert outcome is not None, "it has ended"
        state.forgotten[oldest] = outcome


def _leave(state: State, job: Job) -> None:
    """What it held is free."""
    if state.whole is not None:
        whole_devices.left(state, job)
    else:
        _vacate(state, job)
        state.timers.cancel(("warm", job.id))


def _vacate(state: State, job: Job) -> None:
    device = state.device_of(job)
    if device is None:
        return
    turns.forget(state, job)
    grants.release(state, job)
    lanes.leave(state, job)
    device.jobs.discard(job.id)
    if job.id in device.guests:
        device.guests.discard(job.id)
        touch_lanes(state, device)  # whoever was held off for its turn may begin
        preemption.advance(state, device)  # or go on
        weights.owner_left(state, device, job.spec.owner)
    exclusive.seen(state, job, TraitsSeen(job.id))
    exclusive.give_up(state, device, job)  # also if it was submitted so
    gangs.let_go(state, job)
    warmup.over(state, device, job)
    grants.freed(state, device)


def _tell_dependents(state: State, job: Job) -> None:
    for number in state.dependents.pop(job.id, []):
        other = state.jobs.get(number)
        if other is None or other.phase is not JobPhase.QUEUED:
            continue  # it was cancelled meanwhile
        other.unmet -= {job.id}
        if job.outcome is not Outcome.SUCCEEDED:
            text = f"job {job.id}, which it waits for, ended: {job.outcome}"
            end(state, other, Outcome.REFUSED, reason=Reason("dependency_failed", text))
        elif not other.unmet:
            _enqueue(state, other)


def exited(state: State, job: Job, event: ProcessExited) -> None:
    outcome, reason = _judge(job, event)
    if outcome is Outcome.FAILED and reason is not None:
        verdict = retry.judge(state, job, event, reason)
        if isinstance(verdict, retry.Again):
            _try_again(state, job, event, verdict)
            return
        reason = verdict
    end(state, job, outcome, code=event.code, signal=event.signal, reason=reason)


def _try_again(state: State, job: Job, event: ProcessExited, again: retry.Again) -> None:
    """The job waits as on its first day; what it held is free.  Those that depend on it go on waiting."""
    past = (*job.past, again.past)
    state.emit(RetryJob(job.id, len(past) + 1, again.past, again.spec.estimate, event.code, event.signal))
    job.set(phase=JobPhase.QUEUED, attached=False)
    _leave(state, job)
    job.begin_again(spec=again.spec, past=past)
    if not job.recovering:
        to_the_end(state, job)
    impossible = _impossible_again(state, job)
    if impossible is None:
        _enqueue(state, job)
    else:
        end(state, job, Outcome.FAILED, reason=retry.story(past, impossible))


def _impossible_again(state: State, job: Job) -> Reason | None:
    """Why it could never run once more, whatever has changed since it was taken on."""
    if state.whole is not None:
        return whole_devices.impossible(state, job)
    queue.trust(state, job)
    return queue.impossible(state, job)


def to_the_end(state: State, job: Job) -> None:
    """It waits behind all that are there; what was submitted later has not been passed over by it."""
    if job in state.not_passed:
        state.not_passed.remove(job)
    job.arrival = state.arrivals
    state.arrivals += 1


def _judge(job: Job, event: ProcessExited) -> tuple[Outcome, Reason | None]:
    if job.cancelled:
        return Outcome.CANCELLED, Reason("cancelled", "cancelled")
    if event.code is None and event.signal is None:
        return Outcome.LOST, Reason("lost", "its supervisor vanished; how it ended is unknown")
    note = f" ({event.note})" if event.note else ""
    if event.signal is not None:
        return Outcome.FAILED, Reason("signal", f"killed by signal {event.signal}{note}")
    if event.code:
        return Outcome.FAILED, Reason("exit", f"exited with code {event.code}{note}")
    return Outcome.SUCCEEDED, None


def cancel(state: State, job: Job) -> None:
    """Once; asking again changes nothing."""
    if job.cancelled:
        return
    job.cancelled = True
    if job.phase is JobPhase.QUEUED:
        end(state, job, Outcome.CANCELLED, reason=Reason("cancelled", "cancelled before it started"))
        return
    job.phase = JobPhase.STOPPING
    state.emit(SignalJob(job.id, SIGTERM))
    state.timers.set(("kill", job.id), state.now + state.settings.kill_after_us)
    if state.whole is not None:
        whole_devices.stopping(state, job)
    else:
        requests.give_up(state, job)


def kill(state: State, job: Job) -> None:
    """It did not end in time."""
    job.killed = True
    state.emit(SignalJob(job.id, SIGKILL))


def process_started(state: State, job: Job) -> None:
    if job.phase is JobPhase.STARTING:
        job.phase = JobPhase.RUNNING
    elif job.phase is JobPhase.STOPPING:
        # Cancelled while it started: the first signal may have found no process.
        state.emit(SignalJob(job.id, SIGKILL if job.killed else SIGTERM))


def start_failed(state: State, job: Job, text: str) -> None:
    outcome = Outcome.CANCELLED if job.cancelled else Outcome.FAILED
    end(state, job, outcome, reason=Reason("start_failed", f"could not be started: {text}"))


def attached(state: State, job: Job) -> None:
    """A process of the job sits down.  A later one of the same job counts from zero."""
    job.attached, job.was_attached, job.idle_since_us = True, True, state.now
    job.usage = type(job.usage)()
    co_runners.comes(state, job)
    device = state.device_of(job)
    if device is not None and job.suspends:
        suspension.arrived(state, device, job)


def detached(state: State, job: Job, event: Detached) -> None:
    """The attached process is gone; the job goes on without the device, all but its companions."""
    co_runners.goes(state, job)
    job.attached = False
    exclusive.seen(state, job, TraitsSeen(job.id, event.alone))
    turns.forget(state, job)
    grants.release(state, job)
    device = state.device_of(job)
    if device is not None:
        warmup.over(state, device, job)
        grants.keep(state, job, event.kept)


def warm_timeout(state: State, job: Job) -> None:
    """The job was started a while ago.  If it has not come near its device it counts no more, and keeps nothing."""
    device = state.device_of(job)
    if device is None or job.touched:
        return
    warmup.over(state, device, job)
    if not job.attached:
        grants.release(state, job)
    grants.freed(state, device)


def warmed(state: State, job: Job) -> None:
    """Its window is over."""
    device = state.device_of(job)
    if device is not None:
        warmup.over(state, device, job)
