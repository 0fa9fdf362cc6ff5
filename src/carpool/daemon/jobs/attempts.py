"""Attempts of a job that are over, for the journal and for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.core.model import Attempt
from carpool.protocol.api import AttemptInfo

if TYPE_CHECKING:
    from carpool.daemon.jobs.table import Job


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over.  Times are those of the wall clock."""

    core: Attempt
    started_us: int | None
    ended_us: int
    exit_code: int | None = None
    signal: int | None = None
    persistent_bytes: int = 0  # most that it has used
    ephemeral_bytes: int = 0


def attempts(job: Job) -> list[AttemptInfo]:
    """What is over; nothing for the usual job, which is started once."""
    if not job.past:
        return []
    found = [_attempt_info(number, ended) for number, ended in enumerate(job.past, 1)]
    if job.outcome is not None and job.started_us is not None:
        found.append(_last_attempt(job))
    return found


def _last_attempt(job: Job) -> AttemptInfo:
    whole = job.reason.text if job.reason else str(job.outcome)
    text = whole.removeprefix(f"attempt {job.attempt}: ").partition("; attempt 1")[0]  # its own part of the story
    return AttemptInfo(
        job.attempt,
        job.device,
        job.started_us,
        job.ended_us,
        job.exit_code,
        job.signal,
        text,
        job.usage.persistent_peak,
        job.usage.ephemeral_peak,
        f"log.{job.attempt}",
    )


def _attempt_info(number: int, ended: Ended) -> AttemptInfo:
    return AttemptInfo(
        number,
        ended.core.device,
        ended.started_us,
        ended.ended_us,
        ended.exit_code,
        ended.signal,
        ended.core.text,
        ended.persistent_bytes,
        ended.ephemeral_bytes,
        "log" if number == 1 else f"log.{number}",
    )
