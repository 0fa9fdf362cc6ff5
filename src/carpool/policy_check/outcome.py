"""What the result of a simulation must satisfy under any policy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from carpool.core.model import Allocation, Outcome
from carpool.sim.model.result import JobResult, Result, Span


def check_result(result: Result) -> None:
    """Check that every job succeeded and that no place was used twice.  Raises ContractViolation."""
    for one in result.jobs:
        require(one.outcome is Outcome.SUCCEEDED, f"job {one.job.id} ended {one.outcome}: {one.reason}")
        require(one.started_us is not None and one.started_us >= one.job.submit_us, f"it began before it came: {one}")
    spans = _spans(result)
    _check_places(spans)
    if result.options.settings.allocation is Allocation.DEVICES:
        _check_gangs(result.jobs, spans)


def check_repeated(first: Result, second: Result) -> None:
    """Check that two runs of one trace gave the same result.  Raises ContractViolation."""
    for one, other in zip(first.jobs, second.jobs, strict=True):
        require(one == other, f"two runs of one trace differ:\n  {one}\n  {other}")
    require(_spans(first) == _spans(second), "two runs of one trace differ in which job was on which device")
    require(first.events == second.events, f"two runs of one trace differ: {first.events} and {second.events} events")


def _spans(result: Result) -> list[Span]:
    assert result.recording is not None, "cases record"
    return result.recording.spans


def _check_places(spans: list[Span]) -> None:
    """Check that at most one job at a time has a device, or the turn of a lane."""
    places: defaultdict[tuple[int, int], list[Span]] = defaultdict(list)
    for span in spans:
        places[span.device, span.lane].append(span)
    for found in places.values():
        found.sort(key=lambda span: span.begin_us)
        for before, after in pairwise(found):
            require(before.end_us <= after.begin_us, f"two jobs at one place:\n  {before}\n  {after}")


def _check_gangs(jobs: list[JobResult], spans: list[Span]) -> None:
    """Check that each job held all its devices or none, and did all its work, not counting failed attempts."""
    held: defaultdict[int, defaultdict[tuple[int, int], int]] = defaultdict(lambda: defaultdict(int))
    for span in spans:
        held[span.job][span.begin_us, span.end_us] += 1
    for index, one in enumerate(jobs):
        counts = set(held[index].values())
        require(counts == {one.job.gpus}, f"job {one.job.id} needs {one.job.gpus} devices and held {sorted(counts)}")
        done = sum(end - begin for begin, end in held[index])
        require(done >= one.job.duration_us, f"job {one.job.id} worked {done} us of {one.job.duration_us}")


class ContractViolation(AssertionError):
    """A policy breaks the contract of policies."""


@contextmanager
def at(place: str) -> Iterator[None]:
    """Prefix the text of a violation raised inside the block with ``place``."""
    try:
        yield
    except ContractViolation as error:
        raise ContractViolation(f"{place}: {error}") from error.__cause__


def require(truth: bool, what: str) -> None:
    """Raise ContractViolation, with ``what`` the policy did wrong, unless ``truth`` holds."""
    if not truth:
        raise ContractViolation(what)
