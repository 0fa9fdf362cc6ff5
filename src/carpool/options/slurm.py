"""Values of Slurm's options as words of `carpool submit`.

A translator returns no words where nothing is needed, and None for a value that means something else here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from carpool.options.arrays import array_of
from carpool.options.codecs import limit_signal

Translator = Callable[[str], list[str] | None]
_TIMES = (
    r"(?P<m>\d+)(:(?P<s>\d+))?",
    r"(?P<h>\d+):(?P<m>\d+):(?P<s>\d+)",
    r"(?P<d>\d+)-(?P<h>\d+)(:(?P<m>\d+)(:(?P<s>\d+))?)?",
)
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
#: Slurm's words for a delay, and their seconds.
_NOW = re.compile(r"now(?:\+(\d+)(second|minute|hour|day|week|)s?)?")
_DELAYS = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604_800}
_AFTER = {"afterok": "ok", "afterany": "any", "afternotok": "notok"}


class NotTheSame(ValueError):
    """An option that means something else in Carpool; the text says what to do instead."""


def renamed(option: str) -> Translator:
    """Return the translator of an option whose values are the same here."""
    return lambda value: [option, value]


def flag(*words: str) -> Translator:
    """Return the translator of an option without a value."""
    return lambda _value: [*words]


def only(value: str) -> Translator:
    """Return the translator of an option that needs no words where it has this value."""
    return lambda given: [] if given.strip() == value else None


def gpus(value: str) -> list[str]:
    """Translate a number of GPUs, perhaps with ``gpu:`` before it."""
    kind, _, number = value.rpartition(":")
    if kind not in ("", "gpu") or not number.isdecimal():
        raise NotTheSame(f"{value!r}: write a number of GPUs; kinds of GPUs are chosen by --device")
    return ["--gpus", number]


def time_limit(value: str) -> list[str]:
    """Translate minutes, or D-HH:MM:SS and its parts.

    >>> time_limit("1-12:30")
    ['--time', '131400s']
    """
    found = next((match for pattern in _TIMES if (match := re.fullmatch(pattern, value))), None)
    if found is None:
        raise ValueError(f"--time: {value!r} is not a time of Slurm's, as in 90, 1:30:00 or 2-12")
    seconds = sum(int(part or 0) * _SECONDS[unit] for unit, part in found.groupdict().items())
    if not seconds:
        raise NotTheSame(f"--time {value}: in Slurm this means no limit; leave --time out")
    return ["--time", f"{seconds}s"]


def begin(value: str) -> list[str]:
    """Translate a delay; a time of day and a date stay as they are.

    >>> begin("now+2hours"), begin("2026-12-01T10:00"), begin("now")
    (['--begin', '+7200s'], ['--begin', '2026-12-01T10:00'], [])
    """
    if delay := _NOW.fullmatch(value):
        return ["--begin", f"+{int(delay[1]) * _DELAYS[delay[2]]}s"] if delay[1] else []
    if not _is_moment(value):
        raise NotTheSame(f"--begin {value}: now+2hours, 22:00 and 2026-12-01T10:00 are understood")
    return ["--begin", value]


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text if "-" in text else f"2026-01-01T{text}")
    except ValueError:
        return False
    return "-" in text or ":" in text


def warning(value: str) -> list[str]:
    """Translate a signal in Slurm's form, without a letter for its receiver."""
    scope, colon, _ = value.rpartition(":")
    if colon:
        text = "in Slurm this is for the batch shell alone, or about reservations; Carpool signals the whole job"
        raise NotTheSame(f"--signal {value}: {scope}: {text}")
    return _checked("--signal", value, limit_signal)


def array(value: str) -> list[str]:
    """Translate indices, which are written alike."""
    return _checked("--array", value, array_of)


def _checked(option: str, value: str, parse: Callable[[str], object]) -> list[str]:
    """Return an option whose values are written alike.  Raises NotTheSame with the text of an error of ``parse``."""
    try:
        parse(value)
    except ValueError as error:
        raise NotTheSame(f"{option} {value}: {error}") from None
    return [option, value]


def dependency(value: str) -> list[str]:
    """Translate conditions on ids of jobs."""
    made: list[str] = []
    for part in value.split(","):
        kind, *jobs = part.split(":")
        if kind not in _AFTER or not jobs or not all(job.isdecimal() for job in jobs):
            raise NotTheSame(f"--dependency {part}: {', '.join(_AFTER)} with ids are understood")
        prefix = "" if kind == "afterok" else f"{_AFTER[kind]}:"
        made += ["--after", prefix + ",".join(jobs)]
    return made


def export(value: str) -> list[str]:
    """Translate variables behind ALL: Carpool's jobs have the whole environment of the shell in any case."""
    all_of_it, *rest = value.split(",")
    if all_of_it != "ALL":
        raise NotTheSame(f"--export {value}: jobs get the whole environment; ALL, or ALL,NAME=VALUE is understood")
    return [word for pair in rest for word in ("--env", pair)]
