"""Conditions on the result of a simulation under any policy.

What a policy declares about itself, and whether the core accepts its settings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise

from carpool.core.model import Allocation, Outcome, Settings
from carpool.core.policies import Policy
from carpool.core.state.settings_check import check_settings
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


#: Every setting must accept at least one of these values.
VALUES = (1, 1_000, 1_000_000, 1_000_000_000, 0)
UNKNOWN_SETTING = "a_setting_of_no_policy"


def check_declaration(kind: type[Policy]) -> None:
    """Check the attributes of a policy class: name, flags, quantum, names of settings.  Raises ContractViolation."""
    policy = kind()
    require(isinstance(policy.name, str) and bool(policy.name), f"name is {policy.name!r}; it must be a text")
    for part in ("backfill", "by_user", "preemptive", "requeue"):
        value = getattr(policy, part)
        require(isinstance(value, bool), f"{part} is {value!r}; it must be True or False")
    quantum = policy.quantum_us
    require(type(quantum) is int and quantum >= 0, f"quantum_us is {quantum!r}; it must be an integer from 0 on")
    names = policy.settings
    proper = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
    require(proper, f"settings is {names!r}; it must be a tuple of names")
    taken = sorted({part.name for part in fields(Settings)} & set(names))
    require(not taken, f"settings of its own have the names of the core's: {', '.join(taken)}")


def accepted_settings(name: str, kind: type[Policy]) -> Iterator[dict[str, int]]:
    """Yield each setting of the policy with a value that it accepts.

    Raises ContractViolation if the policy refuses its defaults or every value of a setting, or accepts an unknown
    setting.
    """
    require(_refusal(name, {}) is None, f"it refuses its own defaults: {_refusal(name, {})}")
    for setting in kind().settings:
        refusals = {value: _refusal(name, {setting: value}) for value in VALUES}
        fitting = [value for value, refusal in refusals.items() if refusal is None]
        require(bool(fitting), f"it names the setting {setting}, and refuses every value of it: {refusals}")
        yield {setting: fitting[0]}
    require(_refusal(name, {UNKNOWN_SETTING: 1}) is not None, "it takes a setting that it does not name")


def _refusal(name: str, extra: dict[str, int]) -> str | None:
    """Return why the core refuses the settings ``extra``; None if it accepts them.  Raises ContractViolation."""
    try:
        check_settings(Settings(policy=name, extra=extra))
    except ValueError as error:
        return str(error)
    except Exception as error:
        raise ContractViolation(
            f"check raised {error!r} about the settings {extra}; it may raise ValueError"
        ) from error
    return None
