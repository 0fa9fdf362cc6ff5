"""Dependencies of a job on the end of other jobs.  A job whose dependency can never be met is refused.

Slurm leaves such a job in its queue (``DependencyNeverSatisfied``) unless it is told to end it; here it ends at once,
so that jobs that depend on it learn of it.
"""

from __future__ import annotations

from carpool.core.model import Dependency, JobId, JobSpec, Outcome, Reason
from carpool.core.state.job import Job
from carpool.core.state.state import State

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
