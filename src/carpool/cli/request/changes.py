"""``NAME=VALUE`` of `carpool update`: the allowed values of each name, and the field of the request that changes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from carpool.cli.request.awaited_jobs import Words, after
from carpool.options.codecs import Dependencies
from carpool.options.table import UPDATES, request_fields
from carpool.protocol.api import JobUpdate

#: From words for jobs to their ids.
Meant = Callable[[Sequence[Words]], Sequence[Dependencies]]
#: The value that takes a limit or a condition away.
NONE = "none"


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
        if name not in UPDATES:
            raise ValueError(f"there is nothing called {name!r} to change{_meant(name)} ({', '.join(UPDATES)})")
        found |= _change(name, value, meant)
    return JobUpdate(**found)


def _meant(name: str) -> str:
    if other := _OTHERWISE.get(name.lower()):
        return f"; that is here: {other}"
    near = difflib.get_close_matches(name, UPDATES, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _change(name: str, value: str, meant: Meant) -> dict[str, Any]:
    """Parse one change; an empty group is none."""
    option = UPDATES[name]
    if value == NONE and option.clearable:
        return dict(zip(option.fields, option.nothing, strict=True))
    try:
        return request_fields({option.name: _after(value, meant) if name == "after" else option.type.text(value)})
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _after(value: str, meant: Meant) -> Sequence[Dependencies]:
    """Parse ``3,4`` or ``any:3 notok:4``: all jobs that the job waits for from now on."""
    return meant([each for part in value.split() for each in after(part)])
