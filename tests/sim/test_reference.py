"""The simulator agrees with a naive reference, to the microsecond, on every random trace."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from carpool.core.model import Micros, Outcome
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result
from carpool.sim.model.trace_job import TraceJob
from tests.examples import examples
from tests.sim.made_results import recording
from tests.sim.reference import RULES, Rule, crowded_trace, in_scale, scattered_trace, schedule

TRACES_PER_RULE = examples(200, fewer=70)
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)

#: One job of a trace in which nearly everything coincides: (submission, duration, devices).
coinciding = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 10), st.integers(1, 8)), min_size=1, max_size=14)


FIGURES = attrgetter(*("outcome", "started_us", "ended_us", "service_us", "queueing_us", "waiting_us", "preemptions"))


def disagreements(jobs: Sequence[TraceJob], devices: int, rule: Rule) -> list[str]:
    """One line per job about which the two say different things."""
    expected = schedule(jobs, devices, rule)
    result = simulate(jobs, Options(devices=devices, settings=rule.settings(), record=True))
    assert [one.job for one in result.jobs] == list(jobs)
    assert result.busy_us == sum(one.service_us * one.job.gpus for one in expected)
    assert all(one.reason for one in result.jobs if one.outcome is Outcome.REFUSED)
    return [
        f"{one.job}: expected {wanted}, got {got}"
        for index, one in enumerate(expected)
        if (wanted := (FIGURES(one), sorted(one.intervals * one.job.gpus))) != (got := reported(result, index))
    ]


def reported(result: Result, index: int) -> tuple[object, ...]:
    spans = [span for span in recording(result).spans if span.job == index]
    return FIGURES(result.jobs[index]), sorted((span.begin_us, span.end_us) for span in spans)


def check(jobs: Sequence[TraceJob], devices: int, rule: Rule) -> None:
    found = disagreements(jobs, devices, rule)
    assert not found, f"{devices} devices, {rule}:\n" + "\n".join(found)


@every_rule
def test_crowded_traces(rule: Rule) -> None:
    """Ties wherever one looks: small integers, gangs of up to 8 on 1 to 8 devices, some too large."""
    draw = random.Random(1)
    for _ in range(TRACES_PER_RULE):
        devices = draw.randint(1, 8)
        most_gpus = draw.choice([1, devices, min(devices + 1, 8), 8])
        check(crowded_trace(draw, draw.randint(1, 30), most_gpus=most_gpus), devices, rule)


@every_rule
def test_scattered_traces(rule: Rule) -> None:
    """Times that are no whole seconds, lengths with heavy tails."""
    draw = random.Random(2)
    scaled = in_scale(rule, 200_000)
    for _ in range(TRACES_PER_RULE // 2):
        devices = draw.randint(1, 8)
        check(scattered_trace(draw, draw.randint(2, 40), most_gpus=draw.randint(1, 8)), devices, scaled)


@every_rule
@hypothesis_settings(max_examples=examples(100, fewer=35), deadline=None)
@given(coinciding, st.integers(1, 8), st.booleans())
def test_coinciding_events(rule: Rule, trace: list[tuple[int, int, int]], devices: int, ordered: bool) -> None:
    """In a file in any order: what counts is the submission; among equal ones the place in the file."""
    jobs = numbered(trace)
    check(sorted(jobs, key=lambda job: job.submit_us) if ordered else jobs, devices, rule)


@pytest.mark.parametrize("by_devices", [False, True], ids=["seconds", "device-seconds"])
@hypothesis_settings(max_examples=examples(150, fewer=50), deadline=None)
@given(coinciding, st.integers(1, 8), st.integers(1, 12), st.integers(8, 20))
def test_las_with_any_limits(
    by_devices: bool, trace: list[tuple[int, int, int]], devices: int, first: int, gap: int
) -> None:
    """A gap of 8 or more: no job of 8 devices passes two limits within the same microsecond."""
    rule = Rule("las", limits=(first, first + gap), by_devices=by_devices)
    check(sorted(numbered(trace), key=lambda job: job.submit_us), devices, rule)


@every_rule
def test_where_the_trace_begins_does_not_matter(rule: Rule) -> None:
    """Microseconds this late are no longer exact as floating-point numbers: no time may pass through one."""
    late: Micros = 2**53 + 1
    draw = random.Random(3)
    for _ in range(20):
        jobs = crowded_trace(draw, 12, most_gpus=4)
        check([replace(job, submit_us=job.submit_us + late) for job in jobs], 4, rule)


@every_rule
def test_the_reference_itself_runs_everything_that_fits(rule: Rule) -> None:
    """The reference is held to the least that any scheduler must do."""
    draw = random.Random(4)
    for _ in range(50):
        devices = draw.randint(1, 8)
        for one in schedule(crowded_trace(draw, 20, most_gpus=8), devices, rule):
            assert one.outcome == (Outcome.SUCCEEDED if one.job.gpus <= devices else Outcome.REFUSED)
            assert one.service_us == (one.job.duration_us if one.job.gpus <= devices else 0)


def numbered(trace: list[tuple[int, int, int]]) -> list[TraceJob]:
    return [TraceJob(str(number), submit, duration, gpus=gpus) for number, (submit, duration, gpus) in enumerate(trace)]
