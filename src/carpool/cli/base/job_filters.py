"""The options --all, --user, --state and --name, which select jobs, or narrow those that were named; states of jobs.

States are the words of the column STATE: phases, outcomes, and special states within a phase.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from carpool.cli.base.job_words import is_called
from carpool.cli.base.journal_jobs import JobReader
from carpool.cli.base.options_common import user_id
from carpool.core.model import JobPhase, Outcome
from carpool.core.spelling import did_you_mean
from carpool.protocol.api import JobInfo, JobList

OFFLOADED = "offloaded"  # of a running job: its memory is in the host store
PAUSED = "paused"  # of a job that has not ended: a user keeps it off its device
HELD = "held"  # of a queued job: a user keeps it from being placed; `ls` says so in WHY
PHASES = tuple(str(phase) for phase in JobPhase)
#: For each state, the phases in which a job in that state may be.
_PHASES_OF: dict[str, tuple[str, ...]] = {phase: (phase,) for phase in PHASES}
_PHASES_OF |= {HELD: (JobPhase.QUEUED,), OFFLOADED: (JobPhase.RUNNING,)}
_PHASES_OF |= {PAUSED: (JobPhase.QUEUED, JobPhase.STARTING, JobPhase.RUNNING)}
_PHASES_OF |= {str(outcome): (JobPhase.ENDED,) for outcome in Outcome}
STATES = tuple(_PHASES_OF)
EVERYBODY = "*"


def states(texts: Sequence[str]) -> tuple[str, ...]:
    """Parse states with commas between; ``timed out`` as `ls` prints it, ``timed-out`` and ``timed_out`` are the same.

    Raises ValueError, for people.
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    return tuple(dict.fromkeys(map(_state, names)))


def _state(name: str) -> str:
    state = name.lower().replace(" ", "_").replace("-", "_")
    if state not in STATES:
        raise ValueError(f"there is no state {name!r}; {did_you_mean(state, STATES)}the states: {', '.join(STATES)}")
    return state


def phases_of(wanted: Sequence[str]) -> tuple[str, ...]:
    """The phases in which jobs in these states may be; none for no states."""
    return tuple(dict.fromkeys(str(phase) for state in wanted for phase in _PHASES_OF[state]))


def jobs_in(client: JobReader, wanted: Sequence[str], limit: int | None) -> JobList:
    """Jobs in any of these states, or in all, ordered by id; with ``limit`` the newest only."""
    phases = phases_of(wanted)
    if set(wanted) <= set(PHASES):
        return client.job_list(phases, limit)
    listed = client.job_list(phases)
    found = [job for job in listed.jobs if is_in(job, wanted)]
    return JobList(found[-limit:] if limit else found, listed.notice)


def jobs_on(client: JobReader, device: str) -> frozenset[int]:
    """Return the ids of the known jobs of a device."""
    return frozenset(job.id for job in client.jobs() if device in (job.device, *job.devices))


def is_in(job: JobInfo, wanted: Sequence[str]) -> bool:
    """Whether a job is in one of these states."""
    return bool(_states_of(job) & set(wanted))


def _states_of(job: JobInfo) -> set[str | None]:
    """Return all states of a job: an offloaded job is also running, a held job also queued."""
    special = {
        OFFLOADED: job.offloaded and job.phase == JobPhase.RUNNING,
        PAUSED: job.paused_by is not None and job.phase in _PHASES_OF[PAUSED],
        HELD: job.held_by is not None and job.phase == JobPhase.QUEUED,
    }
    return {job.phase, job.outcome, *(state for state, holds in special.items() if holds)}


@dataclass(frozen=True, slots=True)
class Filters:
    """``users``: uids; empty: the caller's own jobs; None: jobs of all users."""

    everything: bool
    users: tuple[int, ...] | None
    states: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def narrow(self) -> bool:
        """Whether there are jobs that these options leave out."""
        return self.users != () or bool(self.states or self.names)

    def take(self, job: JobInfo) -> bool:
        """Whether the job has one of the states and one of the names."""
        return (not self.states or is_in(job, self.states)) and (
            not self.names or any(is_called(job, name) for name in self.names)
        )

    def select(self, jobs: Iterable[JobInfo]) -> list[JobInfo]:
        """Return the jobs that match all options."""
        return [job for job in jobs if self.owned(job) and self.take(job)]

    def owned(self, job: JobInfo) -> bool:
        """Whether the job is of one of the users."""
        return self.users is None or job.owner in (self.users or (os.getuid(),))

    def words(self) -> str:
        """The options as they would be typed, for messages."""
        options = ["--all"] if self.everything else []
        options += [f"--state {','.join(self.states)}"] if self.states else []
        options += [f"--name {name}" for name in self.names]
        return " ".join(options)


def users(texts: Sequence[str]) -> tuple[int, ...] | None:
    """Parse users, given by name or uid with commas between; None: all users.  Raises ValueError, for people."""
    names = [name for text in texts for name in text.split(",")]
    try:
        return None if EVERYBODY in names else tuple(dict.fromkeys(map(user_id, names)))
    except ValueError as error:
        raise ValueError(f"{error}, or '*' for all users") from None
