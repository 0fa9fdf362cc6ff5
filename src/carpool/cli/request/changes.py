"""``NAME=VALUE`` of `carpool update`: the allowed values of each name, and the field of the request that changes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from carpool.cli.base.options_common import positive
from carpool.cli.request.limits import limit_signal
from carpool.cli.request.start_conditions import Dependencies, Words, after, begin_time, by_kind
from carpool.core.model import Dependency
from carpool.protocol.api import JobUpdate
from carpool.protocol.units import positive_time_us

#: From words for jobs to their ids.
Meant = Callable[[Sequence[Words]], Sequence[Dependencies]]
#: The value that takes a limit or a condition away.
NONE = "none"


def _group(value: str) -> str:
    return "" if value == NONE else value


#: The field, the function that parses its value, and whether the value may be `NONE`.
_FIELDS: Mapping[str, tuple[str, Callable[[str], object], bool]] = {
    "name": ("name", str, False),
    "weight": ("weight", positive, False),
    "time": ("time_us", positive_time_us, True),
    "device-time": ("device_time_us", positive_time_us, True),
    "expect": ("duration_us", positive_time_us, True),
    "iterations": ("iterations", positive, True),
    "device": ("device", str, True),
    "begin": ("begin_us", begin_time, True),
    "group": ("group", _group, False),
}
NAMES = (*_FIELDS, "after", "signal")
#: Names of other tools, and of options of `carpool submit`, for the same fields.
_OTHERWISE = {"priority": "weight", "nice": "weight", "timelimit": "time", "limit": "time", "duration": "expect"}
_OTHERWISE |= {"dependency": "after", "jobname": "name", "job-name": "name", "label": "name", "starttime": "begin"}


def changes(words: Sequence[str], meant: Meant) -> JobUpdate:
    """Combine all changes.  ``meant``: finds the jobs that words mean.  Raises ValueError, for people."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not NAME=VALUE, as in weight=200")
        if name not in NAMES:
            raise ValueError(f"there is nothing called {name!r} to change{_meant(name)} ({', '.join(NAMES)})")
        found |= _after(value, meant) if name == "after" else _change(name, value)
    return JobUpdate(**found)


def _meant(name: str) -> str:
    if other := _OTHERWISE.get(name.lower()):
        return f"; that is here: {other}"
    near = difflib.get_close_matches(name, NAMES, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _change(name: str, value: str) -> dict[str, Any]:
    if name == "signal":
        number, before_us = (0, 0) if value == NONE else limit_signal(value)
        return {"limit_signal": number, "limit_signal_us": before_us}
    field, parse, optional = _FIELDS[name]
    try:
        return {field: None if optional and value == NONE else parse(value)}
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _after(value: str, meant: Meant) -> dict[str, Any]:
    """Parse ``3,4``, ``any:3 notok:4`` or ``none``: all jobs that the job waits for from now on."""
    given = meant([] if value == NONE else [each for part in value.split() for each in after(part)])
    kinds = {"after": Dependency.OK, "after_any": Dependency.ANY, "after_notok": Dependency.NOTOK}
    return {field: by_kind(given, kind) for field, kind in kinds.items()}
