"""Jobs that share devices through lanes: small cases worked out by hand, in seconds, under every lane policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from carpool.core.model import GIB, Allocation, Micros, Outcome, Oversubscribe, Settings
from carpool.core.policies import BasePolicy
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options, Timeslice
from carpool.sim.model.result import JobResult, Result
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob
from tests.sim.made_results import check_memory, recording
from tests.sim.reference import SECOND

MS: Micros = 1000
ITERATION = 10 * MS
QUANTUM = BasePolicy.quantum_us
OFF = Oversubscribe.OFF
POLICIES = ["fair", "pack", "srtf", "fifo"]
ONE_LANE = ["fair", "srtf", "fifo"]
every_policy = pytest.mark.parametrize("policy", POLICIES)


def job(name: str, *, at: float = 0, takes: float, memory: tuple[int, int] = (1, 1), **more: int) -> TraceJob:
    """Iterations of 10 ms on the device, nothing on the host.  ``memory`` is persistent and ephemeral, in GiB."""
    submit, duration = round(at * SECOND), round(takes * SECOND)
    persistent, ephemeral = (size * GIB for size in memory)
    plain = TraceJob(name, submit, duration, persistent=persistent, ephemeral=ephemeral)
    return replace(plain, iterations=duration // ITERATION, iteration_us=ITERATION, **more)


def options(policy: str, **more: object) -> Options:
    made = Options(settings=Settings(policy=policy, allocation=Allocation.LANES), record=True)
    return replace(made, **more)


def run(policy: str, *jobs: TraceJob, **more: object) -> list[JobResult]:
    result = simulate(jobs, options(policy, **more))
    check_memory(result)
    check_turns(result)
    return result.jobs


def check_turns(result: Result) -> None:
    """What a job's record says is what its spans show."""
    for index, one in enumerate(result.jobs):
        spans = [span for span in recording(result).spans if span.job == index]
        assert one.started_us == min((span.begin_us for span in spans), default=None), one.job
        held_us = sum(span.end_us - span.begin_us for span in spans)
        assert one.service_us * one.job.gpus == held_us, one.job
        # Who loses a turn comes back for another one, and a turn has a length.
        assert one.preemptions <= max(len(spans) - 1, 0), one.job
        assert all(span.begin_us < span.end_us for span in spans), one.job


def ends(results: Sequence[JobResult]) -> list[Micros]:
    assert all(one.outcome == Outcome.SUCCEEDED for one in results)
    return [one.ended_us for one in results]


# alone


@every_policy
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"iterations": 100, "iteration_us": 30_000},
        {"iterations": 100, "iteration_us": 20_000, "host_us": 10_000},
        # The host takes longer than the grace after which a turn is given up early.
        {"iterations": 10, "iteration_us": 50_000, "host_us": 250_000},
        # 3 s - 7 * 370 ms = 410 ms before the first iteration.
        {"iterations": 7, "iteration_us": 333_000, "host_us": 37_000},
        {"iterations": 1, "iteration_us": 1},
        {"end_us": 500_000},
        # 500 ms before the first iteration, 500 ms after the last one.
        {"iterations": 20, "iteration_us": 50_000, "host_us": 50_000, "end_us": 500_000},
        {"iterations": 4, "iteration_us": 50_000, "host_us": 250_000, "end_us": 1},
        {"iterations": 3001, "iteration_us": 997, "host_us": 2},
        {"utilization_ppm": 123_457},
        {"duration_us": 1_234_567},
        # All of the device.
        {"persistent": 8 * GIB, "ephemeral": 8 * GIB},
    ],
    ids=str,
)
@pytest.mark.parametrize("interference", [None, Timeslice()], ids=["concurrent", "timeslice"])
def test_alone_a_job_takes_its_duration(policy: str, shape: dict[str, int], interference: Timeslice | None) -> None:
    alone = replace(TraceJob("A", 700_001, 3 * SECOND, persistent=GIB, ephemeral=GIB), **shape)
    more = {"interference": interference} if interference else {}
    (one,) = run(policy, alone, **more)
    assert (one.outcome, one.jct_us, one.attempts, one.preemptions) == (Outcome.SUCCEEDED, alone.duration_us, 1, 0)


@every_policy
@pytest.mark.parametrize("declared", [True, False])
def test_what_the_core_is_told_does_not_change_a_lone_job(policy: str, declared: bool) -> None:
    (one,) = run(policy, job("A", takes=3), declare_duration=declared, declare_memory=declared)
    assert ends([one]) == [3 * SECOND]


@every_policy
def test_one_after_the_other_or_on_devices_of_their_own_each_takes_its_duration(policy: str) -> None:
    results = run(policy, job("A", takes=1), job("B", at=2, takes=1), job("C", at=5, takes=2))
    assert ends(results) == [1 * SECOND, 3 * SECOND, 7 * SECOND]
    pair = [job(name, takes=1, memory=(1, 8)) for name in "AB"]
    assert ends(run(policy, *pair, devices=2)) == [SECOND, SECOND]


# side by side


def pair(utilization_ppm: int = WHOLE_PPM, takes: tuple[float, float] = (2, 2)) -> list[TraceJob]:
    return [job(name, takes=length, utilization_ppm=utilization_ppm) for name, length in zip("AB", takes, strict=True)]


def test_pack_two_halves_make_a_whole() -> None:
    """0.5 + 0.5 = 1: neither slows the other, and the device is busy for 2 s."""
    result = simulate(pair(WHOLE_PPM // 2), options("pack"))
    check_memory(result)
    assert ends(result.jobs) == [2 * SECOND, 2 * SECOND]
    assert [one.started_us for one in result.jobs] == [0, 0]
    assert result.busy_us == 2 * SECOND


@pytest.mark.parametrize(
    ("jobs", "ends_s"),
    [
        # 2 s each, at half speed.
        (pair(), [4, 4]),
        # Half speed until B has done its 1 s, at 2.  A has done 1 then, and does its other 2 alone: 4.
        (pair(takes=(3, 1)), [4, 2]),
        # 1: A has done 1 of 2, B comes.  3: A has done its second at half speed, B 1 of 2.  4: B ends.
        ([job("A", takes=2), job("B", at=1, takes=2)], [3, 4]),
        # 0.8 + 0.4 + 0.4 = 1.6: everybody at 1 / 1.6 = 0.625, so 1 s takes 1.6 s.
        ([job(str(ppm), takes=1, utilization_ppm=ppm) for ppm in (800_000, 400_001, 399_999)], [1.6, 1.6, 1.6]),
        # Below the whole device nobody is slowed.
        ([job("A", takes=2, utilization_ppm=600_000), job("B", at=1, takes=1, utilization_ppm=300_000)], [2, 2]),
        # Each iteration: 10 ms of device, 10 ms of host.  On average each asks for half a device.
        ([replace(one, duration_us=4 * SECOND, host_us=ITERATION) for one in pair()], [4, 4]),
    ],
    ids=["two", "the longer one alone", "a later one", "three", "below the whole device", "half on the host"],
)
def test_pack_slows_those_who_need_more_than_the_device(jobs: list[TraceJob], ends_s: list[float]) -> None:
    assert ends(run("pack", *jobs)) == [round(end * SECOND) for end in ends_s]


def test_pack_the_device_is_never_busier_than_whole() -> None:
    """0.75 + 0.75 is full for 1.5 times 2 s: 3 s of a whole device.  A alone at 0.75: 0.75 s for each second."""
    result = simulate(pair(750_000), options("pack"))
    assert result.busy_us == pytest.approx(3 * SECOND, rel=1e-4)
    alone = simulate(pair(750_000)[:1], options("pack"))
    assert alone.busy_us == pytest.approx(1.5 * SECOND, rel=1e-4)


@pytest.mark.parametrize("utilization_ppm", [WHOLE_PPM, WHOLE_PPM // 2, WHOLE_PPM // 100])
@pytest.mark.parametrize(("takes", "ends_s"), [((2, 2), [4, 4]), ((3, 1), [4, 2])])
def test_pack_timeslice_halves_the_speed_of_two_whatever_they_use(
    utilization_ppm: int, takes: tuple[float, float], ends_s: list[int]
) -> None:
    """As under concurrent execution with utilizations of 1; the one that is left has the whole device back."""
    results = run("pack", *pair(utilization_ppm, takes), interference=Timeslice())
    assert ends(results) == [end * SECOND for end in ends_s]


@pytest.mark.parametrize("policy", ONE_LANE)
def test_in_one_lane_nobody_computes_beside_the_holder(policy: str) -> None:
    """Utilization does not matter: 2 + 2 s of turns are 4 s, whoever is first, and spans do not overlap."""
    result = simulate(pair(WHOLE_PPM // 2), options(policy))
    assert max(ends(result.jobs)) == 4 * SECOND
    spans = sorted((span.begin_us, span.end_us) for span in recording(result).spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert sum(one.service_us for one in result.jobs) == 4 * SECOND


# turns


@pytest.mark.parametrize(("weight", "ends_s"), [(100, 4.0), (200, 3.0), (300, 2.667)])
def test_fair_weight_is_a_share(weight: int, ends_s: float) -> None:
    """B gets weight / (weight + 100) of the device until its 2 s are done: after 2 s / share."""
    ordinary, favoured = run("fair", job("A", takes=2), job("B", takes=2, weight=weight))
    assert favoured.ended_us == pytest.approx(ends_s * SECOND, abs=4 * QUANTUM)
    assert max(ends([ordinary, favoured])) == 4 * SECOND


def test_fifo_the_first_one_is_not_disturbed() -> None:
    """B is shorter, and waits all the same."""
    first, second, third = run("fifo", job("A", takes=2), job("B", at=0.5, takes=0.1), job("C", at=0.5, takes=1))
    assert ends([first, second, third]) == [2 * SECOND, 2_100_000, 3_100_000]
    assert [one.started_us for one in (first, second, third)] == [0, 2 * SECOND, 2_100_000]
    assert [one.queueing_us for one in (first, second, third)] == [0, 1_500_000, 1_600_000]


@every_policy
@pytest.mark.parametrize("waiting", [2, 3, 4])
def test_one_turn_at_a_time_is_given_when_the_holder_ends(policy: str, waiting: int) -> None:
    """Several wait in one lane of 10 GiB when A ends; exactly one of them has the turn from that instant on."""
    first = job("A", takes=0.05, memory=(2, 10))
    others = [job(f"B{number}", at=0.01, takes=0.05, memory=(1, 10)) for number in range(waiting)]
    results = run(policy, first, *others)
    assert ends(results) == [SECOND // 20 * number for number in range(1, waiting + 2)]
    assert [one.preemptions for one in results] == [0] * (waiting + 1)


def test_srtf_a_short_one_goes_first() -> None:
    """B waits for the end of an iteration, no longer; A ends when all 10.5 s are done."""
    long, short = run("srtf", job("A", takes=10), job("B", at=2, takes=0.5))
    assert 500 * MS <= short.jct_us <= 500 * MS + ITERATION
    assert ends([long]) == [10_500_000]
    assert (long.preemptions, short.preemptions) == (1, 0)


def test_pack_shares_a_lane_where_memory_ends() -> None:
    """2 + 12 GiB each: the lane of 12 is shared, so both are placed at once and take turns.

    Users never share a lane: there the second is placed when the first has ended.
    """
    pair = [job(name, takes=2, memory=(2, 12)) for name in "AB"]
    first, second = sorted(ends(run("pack", *pair)))
    assert second == 4 * SECOND
    assert first >= 4 * SECOND - 2 * QUANTUM
    mine, theirs = run("pack", pair[0], replace(pair[1], owner=1))
    assert ends([mine, theirs]) == [2 * SECOND, 4 * SECOND]
    assert theirs.started_us == 2 * SECOND


# the end


@every_policy
def test_a_job_that_saves_its_results_holds_no_turn(policy: str) -> None:
    """A computes for 1 s and ends 1 s later; B has the turn, or the device, meanwhile."""
    first = replace(job("A", takes=1), duration_us=2 * SECOND, end_us=SECOND)
    result = simulate([first, job("B", at=1, takes=1)], options(policy))
    check_turns(result)
    assert ends(result.jobs) == [2 * SECOND, 2 * SECOND]
    assert [(span.begin_us, span.end_us) for span in recording(result).spans] == [(0, SECOND), (SECOND, 2 * SECOND)]


@every_policy
def test_a_job_keeps_its_memory_until_it_has_ended(policy: str) -> None:
    """9 + 9 GiB of persistent memory on a device of 16: B waits for A's end, not for the end of its turn."""
    first, second = (job(name, takes=1, memory=(9, 1)) for name in "AB")
    first = replace(first, duration_us=2 * SECOND, end_us=SECOND)
    assert ends(run(policy, first, second, oversubscribe=OFF)) == [2 * SECOND, 3 * SECOND]


@every_policy
@pytest.mark.parametrize(("checkpoint_ms", "ended_ms"), [(None, 3800), (500, 2300), (1200, 2600)])
def test_a_job_dies_while_it_ends(policy: str, checkpoint_ms: int | None, ended_ms: int) -> None:
    """At 1.8 s of 2 s, of which the last one is its end.  From a checkpoint at 1.5 s it needs no turn again."""
    failing = replace(job("A", takes=1), duration_us=2 * SECOND, end_us=SECOND, fails_at_ppm=900_000)
    (one,) = run(policy, replace(failing, checkpoint_us=checkpoint_ms and checkpoint_ms * MS), retries=1)
    assert (one.outcome, one.ended_us, one.attempts) == (Outcome.SUCCEEDED, ended_ms * MS, 2)


# memory


@every_policy
def test_what_does_not_fit_together_waits(policy: str) -> None:
    """9 + 9 GiB of persistent memory on a device of 16; also where it is not declared."""
    pair = [job(name, takes=1, memory=(9, 1)) for name in "AB"]
    first, second = run(policy, *pair, oversubscribe=OFF)
    assert ends([first, second]) == [1 * SECOND, 2 * SECOND]
    assert second.started_us == 1 * SECOND
    assert max(ends(run(policy, *pair, declare_memory=False))) >= 2 * SECOND


@every_policy
def test_memory_is_recorded(policy: str) -> None:
    """3 + 2 GiB, while A runs: at least 5, and nothing after it."""
    result = simulate([job("A", takes=1, memory=(3, 2))], options(policy))
    check_memory(result)
    assert 5 * GIB <= max(recording(result).memory[0].values) <= 6 * GIB


@every_policy
@pytest.mark.parametrize("large", [{"memory": (17, 0)}, {"memory": (1, 16)}, {"memory": (8, 9)}, {"gpus": 3}], ids=str)
def test_a_job_larger_than_the_device_or_the_machine_is_refused(policy: str, large: dict[str, Any]) -> None:
    """It holds up nobody."""
    refused, other = run(policy, job("A", takes=1, **large), job("B", takes=1), devices=2)
    assert (refused.outcome, refused.started_us, refused.service_us) == (Outcome.REFUSED, None, 0)
    assert refused.reason
    assert ends([other]) == [1 * SECOND]


@every_policy
def test_a_gang_has_its_devices_to_itself(policy: str) -> None:
    gang, other, last = run(
        policy, *(job(name, takes=1, gpus=gpus) for name, gpus in (("A", 2), ("B", 1), ("C", 3))), devices=3
    )
    assert ends([gang, other, last]) == [1 * SECOND, 1 * SECOND, 2 * SECOND]


# everything at once


@every_policy
@pytest.mark.parametrize("interference", [None, Timeslice()], ids=["concurrent", "timeslice"])
def test_twenty_jobs_all_end_and_two_runs_are_the_same(policy: str, interference: Timeslice | None) -> None:
    jobs = [
        job(
            str(number),
            at=0.3 * number,
            takes=0.2 + number * 7 % 10 / 5,
            memory=(1 + number % 3, 1 + number * 5 % 9),
            utilization_ppm=WHOLE_PPM * (2 + number % 4) // 5,
            owner=number % 2,
        )
        for number in range(20)
    ]
    more = {"interference": interference} if interference else {}
    first, second = (simulate(jobs, options(policy, devices=2, **more)) for _ in range(2))
    check_memory(first)
    assert all(one.jct_us >= one.job.duration_us for one in first.jobs)
    assert len(ends(first.jobs)) == len(jobs)
    assert first.jobs == second.jobs
    assert first.recording == second.recording
    assert (first.busy_us, first.events) == (second.busy_us, second.events)


@every_policy
def test_a_switch_costs_whoever_comes_back(policy: str) -> None:
    """Turns change hands, so somebody comes back: the last end is later by what that costs, and never earlier."""
    jobs = [job("A", takes=2), job("B", at=0.5, takes=0.5)]
    free, costly = (run(policy, *jobs, switch_cost_us=cost) for cost in (0, 2 * MS))
    preemptions = sum(one.preemptions for one in costly)
    if policy in ("pack", "fifo"):
        assert preemptions == 0
        assert ends(costly) == ends(free)
    else:
        assert preemptions > 0
        assert max(ends(costly)) == max(ends(free)) + 2 * MS * preemptions


@every_policy
@pytest.mark.parametrize(
    ("retries", "checkpoint_ms", "ended_ms", "attempts"), [(0, None, 1100, 1), (1, None, 3100, 2), (1, 500, 2100, 2)]
)
def test_a_job_dies_at_its_share_of_the_work(
    policy: str, retries: int, checkpoint_ms: int | None, ended_ms: int, attempts: int
) -> None:
    """55 of 100 iterations of 20 ms are done; a second attempt does all of them, or goes on from the last checkpoint.

    That is at 1 s, so 1 s is left.
    """
    failing = TraceJob("A", 0, 2 * SECOND, iterations=100, iteration_us=20 * MS, fails_at_ppm=550_000)
    failing = replace(failing, checkpoint_us=checkpoint_ms and checkpoint_ms * MS)
    (one,) = run(policy, failing, retries=retries)
    assert one.outcome == (Outcome.SUCCEEDED if retries else Outcome.FAILED)
    assert (one.ended_us, one.attempts) == (ended_ms * MS, attempts)


def test_services_that_mostly_idle_share_a_device_without_waiting_for_each_other() -> None:
    """Each computes 10 ms of every second.

    The last one keeps the turn: each time the first one is back, 9 times, it takes the grace of 20 ms to see that
    nobody uses it.  The others are watched from the first: their pauses teach that a grace of 20 / 8 = 2.5 ms will do.
    """
    jobs = [TraceJob(str(i), 0, 10 * SECOND, iterations=10, iteration_us=10_000, host_us=990_000) for i in range(3)]
    result = simulate(jobs, Options(settings=Settings(policy="fair")))
    assert [one.ended_us for one in result.jobs] == [10_180_000, 10_192_500, 10_205_000]


def test_a_sleeper_gives_way_to_somebody_who_waits_for_its_memory() -> None:
    """A sleeps 30 s between iterations and holds 3 of 4 GiB; B, which needs 2, gets them long before A ends."""
    sleeper = TraceJob("A", 0, 40 * 31 * SECOND, 1, 40, 1 * SECOND, 30 * SECOND, 3 * GIB)
    other = TraceJob("B", 5 * SECOND, 2 * SECOND, 1, 20, 100_000, 0, 2 * GIB)
    result = simulate([sleeper, other], Options(device_memory=4 * GIB, declare_memory=False, oversubscribe=OFF))
    assert result.jobs[1].ended_us < 120 * SECOND
    assert result.jobs[0].outcome is Outcome.SUCCEEDED
