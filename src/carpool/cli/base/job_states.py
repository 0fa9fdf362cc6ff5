"""States of jobs by the words of the column STATE: phases, how a job ended, and `offloaded`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from carpool.cli.base.journal_jobs import JobReader
from carpool.core.model import JobPhase, Outcome
from carpool.protocol.api import JobInfo, JobList

OFFLOADED = "offloaded"  # of a running job: its memory is in the host store
PHASES = tuple(str(phase) for phase in JobPhase)
#: The phase in which a job is that is in a state.
_PHASE_OF = {phase: phase for phase in PHASES} | {OFFLOADED: str(JobPhase.RUNNING)}
_PHASE_OF |= {str(outcome): str(JobPhase.ENDED) for outcome in Outcome}
STATES = tuple(_PHASE_OF)


def jobs_in(client: JobReader, states: Sequence[str], limit: int | None) -> JobList:
    """Jobs in any of these states, ordered by id; with ``limit`` the newest only."""
    phases = tuple(dict.fromkeys(_PHASE_OF[state] for state in states))
    if set(states) <= set(PHASES):
        return client.job_list(phases, limit)
    listed = client.job_list(phases)
    found = [job for job in listed.jobs if _states_of(job) & set(states)]
    return msgspec.structs.replace(listed, jobs=found[-limit:] if limit else found)


def _states_of(job: JobInfo) -> set[str | None]:
    """An offloaded job runs, too."""
    return {job.phase, job.outcome, OFFLOADED if job.offloaded and job.phase == JobPhase.RUNNING else None}
