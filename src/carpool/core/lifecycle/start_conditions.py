"""Conditions of a job's start: the end of other jobs, and a place in its array.

A job whose dependency can never be met is refused.  Slurm leaves such a job in its queue (``DependencyNeverSatisfied``)
unless it is told to end it; here it ends at once, so that jobs that depend on it learn of it.

Of some arrays only so many jobs run at once: an element is placed when it has one of the array's places.  An element
keeps its place until it has ended, also between its attempts, and while a user has paused it: it has memory then, and
resumes without asking.  An element that may not start, for example because it is held, gives its place to the next one.
"""

from __future__ import annotations

from carpool.core.model import Dependency, JobId, JobSpec, Outcome, Reason
from carpool.core.state.job import Job
from carpool.core.state.state import ArrayPlaces, State

#: The awaited end, as it is added to ``job N`` in a sentence.
_TO = {Dependency.OK: "", Dependency.ANY: " to end", Dependency.NOTOK: " to fail"}


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
        return Reason("dependency_unknown", f"it waits for job {number}, which does not exist")
    if outcome is not None:
        return missed(state, job.spec, number, outcome)
    job.unmet |= {number}
    state.dependents.setdefault(number, {})[job.id] = None  # a job whose submission is changed asks again
    return None


def missed(state: State, spec: JobSpec, number: JobId, outcome: Outcome) -> Reason | None:
    """Why a job with this ``spec`` can never start now that job ``number`` has ended; None: it ended as required."""
    for kind, numbers in spec.dependencies:
        if number in numbers and not kind.met_by(outcome):
            return never_met(state.called(number), kind, outcome)
    return None


def never_met(number: str, kind: Dependency, outcome: Outcome) -> Reason:
    """Why a job is refused that waited for another one, called ``number``, to end differently."""
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
    """Why a job without a place waits."""
    most, array = job.spec.at_most, job.spec.array
    text = f"{most} jobs of array {array} run at once" if most > 1 else f"jobs of array {array} run one at a time"
    return Reason("array", text)
