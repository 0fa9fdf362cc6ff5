"""Submissions: their checks, which of their fields may change, and what a job waits for before it may start.

A job whose dependency can never be met is refused.  Slurm leaves such a job in its queue (``DependencyNeverSatisfied``)
unless it is told to end it; here it ends at once, so that jobs that depend on it learn of it.

Of some arrays only so many jobs run at once: an element is placed when it has one of the array's places.  An element
keeps its place until it has ended, also between its attempts, and while a user has paused it: it has memory then, and
resumes without asking.  An element that may not start, for example because it is held, gives its place to the next one.
"""

from __future__ import annotations

from dataclasses import replace

from carpool.core.model import Dependency, JobId, JobSpec, Outcome, Reason
from carpool.core.state.job import Job
from carpool.core.state.state import ArrayPlaces, State

#: Fields of `JobSpec` that `JobChanged` changes.
CHANGEABLE = (
    *("name", "weight", "iterations", "duration_us", "device", "after", "after_any", "after_notok", "begin_us"),
    *("time_us", "device_time_us", "limit_signal", "limit_signal_us", "group"),
)
LARGEST_SIGNAL = 64
#: Fields of `JobSpec` that are at least 1, if they are set at all.
_AT_LEAST_ONE = ("weight", "iterations", "duration_us", "time_us", "device_time_us")
#: The awaited end, as it is added to ``job N`` in a sentence.
_TO = {Dependency.OK: "", Dependency.ANY: " to end", Dependency.NOTOK: " to fail"}


def changed_spec(spec: JobSpec, wanted: JobSpec) -> JobSpec:
    """Return ``spec`` with the `CHANGEABLE` fields of ``wanted``; what attempts have taught about memory stays."""
    return replace(spec, **{name: getattr(wanted, name) for name in CHANGEABLE})


def check_spec(spec: JobSpec) -> None:
    """Raise ValueError for a submission that makes no sense."""
    for name in _AT_LEAST_ONE:
        _check_one(name, getattr(spec, name))
    if spec.gang < 1:
        raise ValueError(f"gang is {spec.gang}; a job needs at least 1 device")
    if spec.device is not None and not spec.device:
        raise ValueError("the job may use no device at all")
    if spec.service is not None and (spec.needs_several or spec.exclusive or spec.checkpoint):
        raise ValueError("a service shares its device by grant: it cannot be exclusive, nor have several devices")
    _check_counts(spec)
    _check_limits(spec)


def _check_one(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")


def _check_counts(spec: JobSpec) -> None:
    if spec.retries < 0 or spec.retry_pause_us < 0:
        raise ValueError(f"retries is {spec.retries}, after {spec.retry_pause_us} us; both must be at least 0")
    if spec.at_most < 0 or (spec.at_most and spec.array is None):
        raise ValueError(f"at_most is {spec.at_most}; it must be at least 0, and is for elements of arrays")
    if spec.estimate is not None and min(spec.estimate.memory.persistent, spec.estimate.memory.ephemeral) < 0:
        raise ValueError(f"the memory estimate {spec.estimate.memory} is negative")


def _check_limits(spec: JobSpec) -> None:
    if not 0 <= spec.limit_signal <= LARGEST_SIGNAL or spec.limit_signal_us < 0:
        text = f"limit_signal is {spec.limit_signal}, {spec.limit_signal_us} us before the limit"
        raise ValueError(f"{text}; it must be between 0 (none) and {LARGEST_SIGNAL}, and the time at least 0")


def note_dependencies(state: State, job: Job) -> Reason | None:
    """Record which jobs the job waits for; return the reason if a dependency can never be met, else None."""
    job.unmet = frozenset()
    for _, numbers in job.spec.dependencies:
        for number in numbers:
            reason = _note(state, job, number)
            if reason is not None:
                return reason
    return None


def _note(state: State, job: Job, number: JobId) -> Reason | None:
    other = state.jobs.get(number)
    outcome = state.pruned_ids.outcome(number) if other is None else other.outcome
    if other is job or (other is None and outcome is None):
        return Reason("dependency_unknown", f"the job waits for job {number}, which does not exist")
    if outcome is not None:
        return missed(state, job.spec, number, outcome)
    job.unmet |= {number}
    state.dependents.setdefault(number, {})[job.id] = None  # a job whose submission is changed asks again
    return None


def missed(state: State, spec: JobSpec, number: JobId, outcome: Outcome) -> Reason | None:
    """Return why a job with ``spec`` can never start after the end of job ``number``; None: it ended as required."""
    for kind, numbers in spec.dependencies:
        if number in numbers and not kind.met_by(outcome):
            return never_met(state.called(number), kind, outcome)
    return None


def never_met(number: str, kind: Dependency, outcome: Outcome) -> Reason:
    """Return why a job is refused that waited for another one, called ``number``, to end differently."""
    return Reason("dependency_failed", f"job {number}, which it waits for{_TO[kind]}, ended: {outcome.words}")


def explain_dependencies(state: State, job: Job) -> Reason:
    """Name the jobs that the job still waits for."""
    missing = sorted((number, kind) for kind, numbers in job.spec.dependencies for number in numbers)
    texts = (f"job {state.called(number)}{_TO[kind]}" for number, kind in missing if number in job.unmet)
    return Reason("after", "waiting for " + ", ".join(dict.fromkeys(texts)))


def take_place(state: State, job: Job) -> bool:
    """Give the job a place in its array, if it needs one; False: no place is free, and the job waits for one.

    During a restart no places are given: which elements run is not known yet.
    """
    spec = job.spec
    if spec.array is None or not spec.at_most:
        return True
    places = state.arrays.setdefault(spec.array, ArrayPlaces())
    if job.id not in places.taken and (state.restarting or len(places.taken) >= spec.at_most):
        places.waiting.add(job.id)
        job.no_place = True
        return False
    _give(places, job)
    return True


def found_running(state: State, job: Job) -> None:
    """Give a job found running after a restart a place, even if its array has too many then."""
    if job.spec.array is not None and job.spec.at_most:
        _give(state.arrays.setdefault(job.spec.array, ArrayPlaces()), job)


def _give(places: ArrayPlaces, job: Job) -> None:
    places.waiting.discard(job.id)
    places.taken.add(job.id)
    job.no_place = False


def leave_place(state: State, job: Job) -> list[Job]:
    """Take the place of a job that has ended or may not start now; return the jobs that get a place by that."""
    if job.spec.array not in state.arrays:
        return []
    places = state.arrays[job.spec.array]
    places.taken.discard(job.id)
    places.waiting.discard(job.id)
    job.no_place = False
    return [] if state.restarting else fill(state, job.spec.array)


def fill(state: State, array: JobId) -> list[Job]:
    """Give the array's free places to waiting elements in order of arrival, and return these."""
    places, found = state.arrays[array], list[Job]()
    while places.waiting:
        job = min((state.jobs[number] for number in places.waiting), key=lambda job: job.arrival)
        if len(places.taken) >= job.spec.at_most:
            break
        _give(places, job)
        found.append(job)
    if not places.taken and not places.waiting:
        del state.arrays[array]
    return found


def explain_array(job: Job) -> Reason:
    """Return why a job without a place waits."""
    most, array = job.spec.at_most, job.spec.array
    text = f"{most} jobs of array {array} run at once" if most > 1 else f"jobs of array {array} run one at a time"
    return Reason("array", text)
