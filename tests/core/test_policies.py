"""Order and fairness under each policy, on the real machine."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from carpool.core import events
from carpool.core.commands import NameSuccessor, RequestYield, WatchIdle
from carpool.core.model import Settings, Usage
from carpool.core.policies import available_policies, load_policy
from carpool.plugins import ensure_policy
from tests.core.scenario import EVERY_BOUNDARY, Scenario, estimate
from tests.core.timelines import Timeline, Toy, settings


def device_ms(timeline: Timeline, until: int) -> dict[str, int]:
    """Device time of each job up to a moment."""
    return {
        toy.name: sum(max(0, min(end, until) - begin) for begin, end, _ in toy.spans) for toy in timeline.toys.values()
    }


def long_jobs(*shapes: tuple[str, int, int, int]) -> list[Toy]:
    """Name, arrival, milliseconds per iteration, weight; all long enough not to end within the test."""
    return [Toy(name, arrives, 2000 // device, device, weight=weight) for name, arrives, device, weight in shapes]


def test_fair_gives_equal_device_time_whatever_an_iteration_takes() -> None:
    timeline = Timeline(settings("fair"), long_jobs(("A", 0, 3, 100), ("B", 0, 40, 100), ("C", 0, 11, 100))).run()
    shares = device_ms(timeline, 3000)
    assert max(shares.values()) - min(shares.values()) <= 100, shares


def test_fair_follows_weights() -> None:
    timeline = Timeline(settings("fair", 20), long_jobs(("A", 0, 5, 300), ("B", 0, 5, 100))).run()
    shares = device_ms(timeline, 2000)
    assert shares["A"] / shares["B"] == pytest.approx(3, rel=0.1)


def test_a_newcomer_starts_level_with_the_present() -> None:
    timeline = Timeline(settings("fair"), long_jobs(("A", 0, 10, 100), ("B", 1000, 10, 100))).run()
    after = {name: share - (1000 if name == "A" else 0) for name, share in device_ms(timeline, 2000).items()}
    assert abs(after["A"] - after["B"]) <= 100, after


def test_a_job_that_was_away_does_not_hoard_credit() -> None:
    """A is away for a second; afterwards B keeps half of the device."""
    scenario = Scenario(replace(EVERY_BOUNDARY, quantum_us=50_000))
    scenario.device("host0", 1000)
    for job in (1, 2):
        scenario.start(job, estimate=estimate(10, 10))
    scenario.want(1)
    scenario.at(50).release(1, ms=50)
    scenario.want(2)
    scenario.at(1050).want(1)
    one, two = scenario.job(1), scenario.job(2)
    assert two.virtual_us == 1_050_000, "it started where the lane was, and has had a second"
    assert one.virtual_us == 1_000_000, "level, less one quantum of credit"


def test_a_short_absence_costs_nothing() -> None:
    """Nearly half of A's time is on the CPU; it still gets half of the device, and B fills the gaps."""
    toys = [Toy("A", 0, 100, 10, cpu=8), Toy("B", 0, 200, 10)]
    shares = device_ms(Timeline(settings("fair", 5), toys).run(), 1000)
    assert shares["A"] >= 480, shares
    assert shares["A"] + shares["B"] >= 980, "the device does not idle"


@pytest.mark.parametrize("policy", available_policies())
def test_no_policy_idles_the_device_while_somebody_could_compute(policy: str) -> None:
    toys = [Toy("A", 0, 20, 10, cpu=15), Toy("B", 0, 40, 7), Toy("C", 5, 30, 4, cpu=2)]
    timeline = Timeline(Settings(policy=policy, quantum_us=20_000, max_lanes=1), toys).run()
    spans = sorted(span[:2] for toy in toys for span in toy.spans)
    overlap = [(a, b) for a, b in pairwise(spans) if b[0] < a[1]]
    assert not overlap, "one turn per lane"
    b_end = toys[1].ended
    assert b_end is not None
    idle = sum(b[0] - a[1] for a, b in pairwise(spans) if b[0] <= b_end)
    assert idle == 0, "B never sleeps, so the device has no reason to"
    assert timeline.machine.view().lanes == {}


def test_srtf_orders_unknown_lengths_by_attained_service() -> None:
    scenario = Scenario(replace(EVERY_BOUNDARY, policy="srtf"))
    scenario.device("host0", 1000)
    for job, attained in ((1, 400), (2, 300), (3, 10)):
        scenario.start(job)
        scenario.send(events.Sampled(job, Usage(iterations=10, device_us=attained * 1000)))
    for job in (1, 2):
        scenario.want(job)
    assert scenario.want(3) == [NameSuccessor(1, 1, 3)]


def test_srtf_knows_the_rest_from_progress_iterations_duration_or_history() -> None:
    scenario = Scenario(replace(EVERY_BOUNDARY, policy="srtf"))
    scenario.device("host0", 1000)
    scenario.start(1, iterations=100)
    scenario.start(2, duration_us=500_000)
    scenario.start(3, estimate=estimate(1, 1, iteration_us=2000, iterations=50))
    scenario.start(4, iterations=1_000_000)
    assert [scenario.job(job).remaining_us for job in (1, 2, 3)] == [None, 500_000, 100_000]
    for job in (1, 2, 3):
        scenario.send(events.Sampled(job, Usage(iterations=10, device_us=10_000)))
    assert [scenario.job(job).remaining_us for job in (1, 2, 3)] == [90_000, 490_000, 40_000]
    scenario.send(events.Sampled(4, Usage(iterations=7, device_us=30_000, progress_done=3, progress_total=4)))
    assert scenario.job(4).remaining_us == 10_000


def test_srtf_asks_the_longer_one_for_its_turn() -> None:
    scenario = Scenario(replace(EVERY_BOUNDARY, policy="srtf"))
    scenario.device("host0", 1000)
    for job, iterations in ((1, 500), (2, 900), (3, 20)):
        scenario.start(job, iterations=iterations, estimate=estimate(10, 50, iteration_us=1000))
    scenario.want(1)
    assert scenario.want(2) == [NameSuccessor(1, 1, 2), WatchIdle(1, 20_000)], "a longer one waits"
    assert scenario.want(3) == [NameSuccessor(1, 1, 3), RequestYield(1)]


def test_a_policy_of_ones_own_with_settings_of_its_own() -> None:
    name = "tests.core.smallest:Smallest"
    ensure_policy(name)
    scenario = Scenario(replace(EVERY_BOUNDARY, policy=name, extra={"patience_us": 30_000}))
    scenario.device("host0", 1000)
    scenario.start(1, estimate=estimate(10, 50))
    scenario.start(2, estimate=estimate(20, 50))
    scenario.want(1)
    scenario.want(2)
    assert scenario.at(29).last == []
    assert scenario.at(30).last == [RequestYield(1)]
    assert load_policy(name).name == "smallest"
