"""Microsoft's Philly trace: ``cluster_job_log`` of github.com/msr-fiddle/philly-traces (Jeon et al., USENIX ATC 2019).

A JSON list of jobs, each with its attempts.  What is taken from it:

- the job's devices are those of its first attempt that names any;
- its duration is the sum of its attempts that have a start and a later end: a retried job has used all of that time;
- whether it passed, failed or was killed does not matter: it ended when it ended;
- its owner is its user; jobs without a usable attempt are left out and counted.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from carpool.sim.model.trace_job import TraceJob
from carpool.sim.traces.files import Collection, Found, TraceError, open_text, quoted, readable

_FORM = "%Y-%m-%d %H:%M:%S"
_UNKNOWN = (None, "", "None")  # how the log writes an unknown time


def read_philly(path: Path) -> tuple[list[TraceJob], list[str]]:
    """Read the log.  Raises TraceError for the first job that does not have its form."""
    collection = Collection(path)
    for position, entry in enumerate(_load(path), start=1):
        try:
            _read_job(entry, collection)
        except _Malformed as why:
            raise TraceError.at(path, f"job {position}", f"{why}; check the file") from None
    return collection.finish()


class _Malformed(ValueError):
    """The text says what is wrong."""


def _load(path: Path) -> list[Any]:
    with readable(path), open_text(path) as file:
        try:
            entries = json.load(file)
        except json.JSONDecodeError as error:
            raise TraceError.at(
                path, f"line {error.lineno}", f"this is not JSON ({error.msg}); fetch the file again"
            ) from None
        except RecursionError:
            raise TraceError.at(path, "", "this JSON is nested too deeply for a list of jobs; check the file") from None
    if not isinstance(entries, list):
        raise TraceError.at(path, "", "this JSON is not a list of jobs; take cluster_job_log of the Philly trace")
    return entries


def _read_job(entry: Any, collection: Collection) -> None:
    if not isinstance(entry, dict):
        raise _Malformed(f"{quoted(entry)} is not a job")
    owner = collection.number(str(entry.get("user", "")))
    attempts = _list(entry, "attempts")
    duration = sum(_length(attempt) for attempt in attempts)
    gpus = next((count for attempt in attempts if (count := _gpus(attempt))), 0)
    if duration == 0 or gpus == 0:
        collection.skip("job that never ran", "jobs that never ran")
        return
    submit = _time(entry, "submitted_time")
    if submit is None or not entry.get("jobid"):
        raise _Malformed("jobid or submitted_time is missing")
    collection.add(Found(submit, str(entry["jobid"]), duration, gpus, owner=owner))


def _length(attempt: Any) -> int:
    """Return microseconds; 0 for an attempt that is not known to have started and ended."""
    start, end = _time(attempt, "start_time"), _time(attempt, "end_time")
    return 0 if start is None or end is None else max(0, end - start)


def _gpus(attempt: Any) -> int:
    return sum(len(_list(server, "gpus")) for server in _list(attempt, "detail"))


def _list(entry: Any, key: str) -> list[Any]:
    value = entry.get(key, []) if isinstance(entry, dict) else None
    if not isinstance(value, list):
        raise _Malformed(f"{key} is {quoted(value)}, not a list")
    return value


def _time(entry: Any, key: str) -> int | None:
    """Return microseconds on the log's own clock, or None."""
    text = entry.get(key) if isinstance(entry, dict) else None
    if text in _UNKNOWN:
        return None
    try:
        return int(datetime.strptime(str(text), _FORM).replace(tzinfo=UTC).timestamp()) * 1_000_000
    except ValueError:
        raise _Malformed(f"{key} is {quoted(text)}, not a time such as 2017-10-07 01:11:39") from None
