"""What holds for every trace on whole devices: nothing is lost, nothing used twice, nothing idle without a reason."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from carpool.core.model import Micros, Outcome
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options
from carpool.sim.model.result import JobResult, Result, Span
from carpool.sim.model.trace_job import TraceJob
from tests.examples import examples
from tests.sim.made_results import recording
from tests.sim.reference import RULES, SECOND, WORK_CONSERVING, Rule, crowded_trace, in_scale, jobs_of, scattered_trace

TRACES = examples(40, fewer=20)
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
work_conserving = pytest.mark.parametrize("rule", WORK_CONSERVING.values(), ids=WORK_CONSERVING)


def results(rule: Rule, seed: int) -> Iterator[Result]:
    """Simulations of random traces, with their spans."""
    draw = random.Random(seed)
    for number in range(TRACES):
        devices = draw.randint(1, 8)
        make, scale = (crowded_trace, 1) if number % 2 else (scattered_trace, 200_000)
        jobs = make(draw, draw.randint(1, 40), most_gpus=draw.randint(1, 8))
        yield simulate(jobs, Options(devices, in_scale(rule, scale).settings(), record=True))


def by_job(result: Result) -> dict[int, list[Span]]:
    found = defaultdict(list)
    for span in recording(result).spans:
        found[span.job].append(span)
    return found


def run(*jobs: TraceJob, rule: str = "srtf", **options: int) -> list[JobResult]:
    return simulate(jobs, Options(settings=RULES[rule].settings(), **options)).jobs


@every_rule
def test_no_device_is_used_twice(rule: Rule) -> None:
    for result in results(rule, seed=3):
        per_device = defaultdict(list)
        for span in recording(result).spans:
            assert 0 <= span.device < result.options.devices
            assert span.lane == 0
            assert span.begin_us < span.end_us
            per_device[span.device].append((span.begin_us, span.end_us))
        for spans in per_device.values():
            spans.sort()
            assert all(before[1] <= after[0] for before, after in pairwise(spans))


@every_rule
def test_a_gang_holds_all_its_devices_or_none_and_stays_on_them(rule: Rule) -> None:
    """It would have to move its memory: whoever is not preempted is not moved either."""
    for result in results(rule, seed=4):
        for index, spans in by_job(result).items():
            devices = defaultdict(set)
            for span in spans:
                devices[span.begin_us, span.end_us].add(span.device)
            assert {len(held) for held in devices.values()} == {result.jobs[index].job.gpus}
            assert len(spans) == sum(len(held) for held in devices.values())
            assert all(before[1] < after[0] for before, after in pairwise(sorted(devices)))
            assert len(devices) == result.jobs[index].preemptions + 1


@work_conserving
def test_no_device_idles_beside_a_job_that_fits(rule: Rule) -> None:
    for result in results(rule, seed=6):
        spans = by_job(result)
        instants = {one.job.submit_us for one in result.jobs} | {span.end_us for span in recording(result).spans}
        for now in instants:
            running = {index for index, found in spans.items() if any(s.begin_us <= now < s.end_us for s in found)}
            idle = result.options.devices - sum(result.jobs[index].job.gpus for index in running)
            for index, one in enumerate(result.jobs):
                waits = one.job.submit_us <= now < one.ended_us and index not in running
                assert not waits or one.job.gpus > idle, (one.job, now)


@every_rule
def test_two_runs_are_the_same_and_recording_changes_nothing(rule: Rule) -> None:
    for first, second in zip(results(rule, seed=7), results(rule, seed=7), strict=True):
        plain = simulate([one.job for one in first.jobs], replace(first.options, record=False))
        assert first.jobs == second.jobs == plain.jobs
        assert recording(first).spans == recording(second).spans and plain.recording is None
        assert (first.busy_us, first.events) == (second.busy_us, second.events)


@every_rule
def test_an_empty_trace(rule: Rule) -> None:
    result = simulate([], Options(2, rule.settings()))
    assert (result.jobs, result.busy_us) == ([], 0)


# switch cost


@pytest.mark.parametrize(
    ("jobs", "devices", "cost_ms", "figures"),
    [
        # 1: B displaces A for 2 s.  3: A loses 0.25 s, then does its last 3 s: it ends at 6.25.
        ("A 0+4, B 1+2", 1, 250, [(6250, 4250, 1), (3000, 2000, 0)]),
        # B: 1 to 2.  A comes back, costs until 2.5, has 8.5 left at 3.  C: 3 to 4.  Cost until 4.5, ends at 13.
        ("A 0+10, B 1+1, C 3+1", 1, 500, [(13_000, 11_000, 2), (2000, 1000, 0), (4000, 1000, 0)]),
        # 1: B takes one of the two devices, so the gang A loses both.  2: 0.5 s lost, 3 s left: A ends at 5.5.
        ("A 0+4x2, B 1+1", 2, 500, [(5500, 4500, 1), (2000, 1000, 0)]),
    ],
    ids=["once", "again", "a gang"],
)
def test_a_preemption_costs_the_job_that_comes_back(
    jobs: str, devices: int, cost_ms: int, figures: list[tuple[int, int, int]]
) -> None:
    """When each job ends, its service in ms, and how often it was preempted."""
    result = simulate(jobs_of(jobs), Options(devices, RULES["srtf"].settings(), switch_cost_us=cost_ms * 1000))
    found = [(one.ended_us // 1000, one.service_us // 1000, one.preemptions) for one in result.jobs]
    assert found == figures
    assert result.busy_us == sum(one.service_us * one.job.gpus for one in result.jobs)
    first = result.jobs[0]
    assert (first.queueing_us, first.waiting_us) == (0, first.jct_us - first.service_us)


@every_rule
def test_switch_cost_is_paid_per_preemption(rule: Rule) -> None:
    """Whoever is displaced again before the cost is paid may owe the rest of it or not; all others pay exactly."""
    cost = 70
    draw = random.Random(10)
    for _ in range(TRACES):
        jobs = [in_thousands(job) for job in crowded_trace(draw, 20, most_gpus=4)]
        result = simulate(jobs, Options(4, in_scale(rule, 1000).settings(), switch_cost_us=cost, record=True))
        spans = by_job(result)
        for index, one in enumerate(result.jobs):
            turns = sorted({(span.begin_us, span.end_us) for span in spans[index]})
            cut_short = sum(end - begin < cost for begin, end in turns[1:])
            lost = one.service_us - one.job.duration_us
            assert cost * (one.preemptions - cut_short) <= lost <= cost * one.preemptions, one.job
            assert cut_short or lost == cost * one.preemptions, one.job
            assert one.outcome == Outcome.SUCCEEDED
            assert one.jct_us == one.service_us + one.waiting_us


def in_thousands(job: TraceJob) -> TraceJob:
    return replace(job, submit_us=1000 * job.submit_us, duration_us=1000 * job.duration_us)


# failures

#: 55 of 100 seconds are done when it dies.
FAILING = TraceJob("A", 0, 100 * SECOND, fails_at_ppm=550_000)


def summary(one: JobResult) -> tuple[Outcome, Micros, Micros, int]:
    return (one.outcome, one.ended_us, one.service_us, one.attempts)


@pytest.mark.parametrize("name", RULES)
def test_a_job_dies_at_its_share_of_the_work(name: str) -> None:
    """What waits behind it goes on at once."""
    jobs = [FAILING, TraceJob("B", 0, 100 * SECOND)]
    rule = in_scale(RULES[name], 1000 * SECOND)
    failed, other = simulate(jobs, Options(settings=rule.settings())).jobs
    assert summary(failed) == (Outcome.FAILED, 55 * SECOND, 55 * SECOND, 1)
    assert failed.reason
    assert summary(other) == (Outcome.SUCCEEDED, 155 * SECOND, 100 * SECOND, 1)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    ("retries", "checkpoint_s", "ends_s"),
    [
        (1, None, 155),  # 55 s lost, then all 100
        (5, None, 155),  # more retries than failures are not used
        (1, 20, 115),  # dies at 55, goes on from 40: 60 are left
        (1, 55, 100),  # a checkpoint at the very moment: nothing is lost
        (1, 60, 155),  # no checkpoint yet
        (1, 1, 100),
    ],
)
def test_a_retry_begins_anew_or_at_the_last_checkpoint(
    name: str, retries: int, checkpoint_s: int | None, ends_s: int
) -> None:
    job = replace(FAILING, checkpoint_us=checkpoint_s and checkpoint_s * SECOND)
    (one,) = run(job, rule=name, retries=retries)
    assert summary(one) == (Outcome.SUCCEEDED, ends_s * SECOND, ends_s * SECOND, 2)
    assert (one.started_us, one.queueing_us, one.preemptions) == (0, 0, 0)


def test_a_retry_joins_the_tail() -> None:
    """A dies at 55, so B (submitted at 0) is next, until 65; then A again, all 100."""
    failing, other = run(FAILING, TraceJob("B", 0, 10 * SECOND), rule="fifo", retries=1)
    assert summary(failing) == (Outcome.SUCCEEDED, 165 * SECOND, 155 * SECOND, 2)
    assert (failing.waiting_us, failing.queueing_us) == (10 * SECOND, 0)
    assert (other.started_us, other.ended_us) == (55 * SECOND, 65 * SECOND)


def test_a_preempted_job_fails_after_the_same_work() -> None:
    """10: B displaces A until 15.  A has done 10 and dies 45 later, at 60."""
    failing, _ = run(FAILING, TraceJob("B", 10 * SECOND, 5 * SECOND))
    assert summary(failing) == (Outcome.FAILED, 60 * SECOND, 55 * SECOND, 1)
    assert failing.preemptions == 1
