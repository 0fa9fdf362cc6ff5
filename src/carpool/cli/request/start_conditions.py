"""When a job may start: a time of day, a delay, other jobs' ends."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from carpool.cli.base.job_words import JobWord, job_word
from carpool.core.model import Dependency
from carpool.protocol.units import parse_time_us

Dependencies = tuple[Dependency, tuple[int, ...]]
#: Dependencies by words, before the jobs that the words mean are known.
Words = tuple[Dependency, tuple[JobWord, ...]]
_COMMA = re.compile(r",(?![^\[]*\])")  # not one between the indices of an array
#: Separates conditions, as in ``ok:3 any:4`` and ``ok:3,any:4``.
_NEXT = re.compile(rf"[\s,]+(?=(?:{'|'.join(Dependency)}):)")
_FORMS = "write for example +2h, 22:00 or 2026-01-31T22:00"


def begin_time(text: str, now: datetime | None = None) -> int:
    """Parse ``+2h``, ``22:00`` (tomorrow if that is past today) or a future date, to microseconds of the wall clock.

    A number alone is refused: elsewhere it means seconds, here it could be an hour.  Raises ValueError, for people.
    """
    if text.startswith("+"):
        return time.time_ns() // 1000 + parse_time_us(text[1:])
    now = datetime.now().astimezone() if now is None else now
    try:
        if text.isdecimal():
            raise ValueError
        moment = datetime.fromisoformat(f"{now.date()}T{text}" if "-" not in text else text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time to begin: {_FORMS}") from None
    if "-" not in text and moment.astimezone() <= now:
        moment += timedelta(days=1)
    if moment.astimezone() < now:
        raise ValueError(f"{text!r} is past: {_FORMS}, or leave it out to begin at once")
    return int(moment.timestamp()) * 1_000_000


def dependency(text: str) -> tuple[Dependency, str]:
    """Split ``any:3``, or ``3``, which means ``ok:3``, into kind and text.  Raises ValueError, for people."""
    kind, colon, rest = text.partition(":")
    if not colon:
        return Dependency.OK, text
    if kind not in list(Dependency):
        raise ValueError(f"{kind!r} is not a way to end: write ok:3 (succeeds), any:3 (ends) or notok:3 (fails)")
    return Dependency(kind), rest


def after(text: str) -> tuple[Words, ...]:
    """Parse ``3,4``, ``notok:3-5``, ``any:train,@``, ``ok:3 any:4``, ``ok:3,any:4``.  Raises ValueError, for people."""
    return tuple(map(_condition, _NEXT.split(text.strip())))


def _condition(text: str) -> Words:
    kind, rest = dependency(text)
    return kind, tuple(map(job_word, _COMMA.split(rest)))


def by_kind(given: Sequence[Dependencies], wanted: Dependency) -> list[int]:
    """Return the jobs that have to end as ``wanted``, each once."""
    return sorted({number for kind, numbers in given if kind is wanted for number in numbers})
