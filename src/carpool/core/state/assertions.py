"""The stories of jobs and lanes, and how a broken invariant is told with them."""

from __future__ import annotations

from collections.abc import Iterable

from carpool.core.events import InvariantError
from carpool.core.model import Micros
from carpool.core.state.job import Job
from carpool.core.state.lane import Lane
from carpool.core.units import format_seconds


def story(history: Iterable[tuple[Micros, object]]) -> str:
    """Return the last events of a job or lane, one per line."""
    return "".join(f"\n  {format_seconds(when)}: {what}" for when, what in history)


def require(truth: bool, what: str, subject: Job | Lane) -> None:
    """Raise InvariantError with the subject's story unless ``truth``; ``what`` says what is wrong."""
    if not truth:
        kind = "job" if isinstance(subject, Job) else "lane"
        raise InvariantError(f"{kind} {subject.id}: {what}{story(subject.history)}")
