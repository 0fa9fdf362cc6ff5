"""Shared by the readers of other projects' traces: counting skipped jobs, and starting the clock at zero."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob
from carpool.sim.traces.files import TraceError, without_collection


class Found(NamedTuple):
    """A job on the clock of its trace; times are microseconds."""

    submit_us: int
    id: str
    duration_us: int
    gpus: int
    utilization_ppm: int = WHOLE_PPM
    owner: int = 0
    model: str = ""


class Collection:
    """Jobs, and the reasons for which others are left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[Found] = []
        self._skipped: Counter[tuple[str, str]] = Counter()
        self._numbers: dict[str, int] = {}

    def add(self, found: Found) -> None:
        self._found.append(found)

    def skip(self, one: str, many: str) -> None:
        """Count a skipped job.  ``one`` and ``many`` finish the sentence "skipped 1 ..." and "skipped 7 ..."."""
        self._skipped[one, many] += 1

    def number(self, user: str) -> int:
        """Return the number of a user; users are numbered in the order in which they appear."""
        return self._numbers.setdefault(user, len(self._numbers))

    def finish(self) -> tuple[list[TraceJob], list[str]]:
        """Return jobs in order of submission, with times from the first one, and notes.

        Raises TraceError if no job is left.
        """
        notes = [f"skipped {count:,} {one if count == 1 else many}" for (one, many), count in self._skipped.items()]
        if not self._found:
            detail = f" ({'; '.join(notes)})" if notes else ""
            raise TraceError.at(self._path, "", f"there is no job to simulate{detail}; check that the file is whole")
        self._found.sort(key=lambda found: found.submit_us)
        first = self._found[0].submit_us
        ids = _Ids()
        with without_collection():
            return [_job(found, first, ids.unique(found.id)) for found in self._found], notes


class _Ids:
    """Makes ids unique that a trace uses more than once: a, a#2, a#3."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._repeats: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        result = name
        while result in self._seen:
            self._repeats[name] += 1
            result = f"{name}#{self._repeats[name] + 1}"
        self._seen.add(result)
        return result


def _job(found: Found, first: int, name: str) -> TraceJob:
    return TraceJob(
        id=name,
        submit_us=found.submit_us - first,
        duration_us=found.duration_us,
        gpus=found.gpus,
        utilization_ppm=found.utilization_ppm,
        owner=found.owner,
        model=found.model,
    )
