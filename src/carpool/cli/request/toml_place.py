"""In which line of a TOML file something is: `tomllib` tells only where a file is not TOML at all."""

from __future__ import annotations

import re

_HEADER = re.compile(r"\s*\[(\[?)\s*([^\[\]]+?)\s*\]")
JOBS = "job"


def line_of(text: str, job: int | None, key: str | None) -> int:
    """The line, from 1 on, of ``key`` in the ``job``-th [[job]] (from 0; None: outside of them).

    Without such a key (it may be written in a way that this does not know) that of the table, else 1.
    """
    here: int | None = None
    table, seen, begin = "", -1, 1
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header is not None:
            table = header[2].replace('"', "")
            seen += bool(header[1]) and table == JOBS
            here = seen if table.partition(".")[0] == JOBS else None
            if here == job and table == JOBS and job is not None:
                begin = number
            if here == job and key is not None and table in (key, f"{JOBS}.{key}"):
                return number
        elif here == job and table in ("", JOBS) and key is not None and _is(line, key):
            return number
    return begin


def _is(line: str, key: str) -> bool:
    return re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line) is not None
