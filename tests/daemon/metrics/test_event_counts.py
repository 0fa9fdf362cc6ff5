"""What the core is told and decides, as counters and histograms."""

from __future__ import annotations

import random

import pytest
from prometheus_client import CollectorRegistry

from carpool.core import commands, events
from carpool.core.model import Attempt, Cause, JobPhase, JobSpec, Memory, MemoryClass, Outcome, Reason, Usage
from carpool.daemon.metrics.page import EventCounts
from carpool.facts.fold import FactFeed


class Counted:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.counts = EventCounts(self.registry)
        self.facts = FactFeed(self.counts.take)
        self.at(0, *(commands.StartJob(job, "host0", 1) for job in range(10)))

    def at(self, now_us: int, *happened: events.Event | commands.Command) -> None:
        for each in happened:
            self.counts.happened(now_us, each)
            self.facts.happened(now_us, each)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"carpool_{name}", labels)


@pytest.fixture
def counted() -> Counted:
    return Counted()


def adopted(job: int, holds_turn: bool) -> events.Adopted:
    places = {"device": "host0", "lane": 1, "granted": Memory(), "attached": True}
    state = {"holds_turn": holds_turn, "wants_turn": False, "offloaded": False, "usage": Usage(), "started_us": 0}
    return events.Adopted(job, JobPhase.RUNNING, **places, **state)  # type: ignore[arg-type]


def test_a_turn_its_wait_and_its_switch(counted: Counted) -> None:
    counted.at(1_000_000, events.TurnWanted(1))
    counted.at(1_000_000, events.TurnWanted(1, urgent=True))  # the same wish
    counted.at(1_300_000, commands.GrantTurn(1, 1))
    counted.at(3_300_000, events.TurnReleased(1, Cause.BOUNDARY, Usage(switch_cost_us=150)))
    assert counted.value("turn_wait_seconds_sum", device="host0") == pytest.approx(0.3)
    assert counted.value("turn_seconds_total", device="host0") == pytest.approx(2.0)
    assert counted.value("turns_total", device="host0", cause="boundary") == 1
    assert counted.value("turn_handover_seconds_sum", device="host0") == pytest.approx(150e-6)
    assert counted.value("turn_handover_seconds_bucket", device="host0", le="0.0001") == 0
    assert counted.value("turn_handover_seconds_bucket", device="host0", le="0.0002") == 1


def test_turns_that_jobs_pass_on_follow_each_other(counted: Counted) -> None:
    counted.at(0, commands.GrantTurn(1, 1), events.TurnWanted(2))
    for at in range(1, 11):
        counted.at(at * 1_000_000, events.TurnPassed(2 - at % 2, 1 + at % 2, Cause.EARLY, Usage()))
    assert counted.value("turn_seconds_total", device="host0") == pytest.approx(10.0)
    assert counted.value("turns_total", device="host0", cause="early") == 10
    assert counted.value("turn_wait_seconds_count", device="host0") == 1


def test_a_job_cannot_say_that_a_switch_took_longer_than_its_turn(counted: Counted) -> None:
    counted.at(0, commands.GrantTurn(1, 1))
    counted.at(20, events.TurnReleased(1, Cause.FORCED, Usage(switch_cost_us=1 << 31)))
    assert counted.value("turn_handover_seconds_sum", device="host0") == pytest.approx(20e-6)


def test_while_a_turn_is_paused_its_lane_has_no_holder(counted: Counted) -> None:
    counted.at(0, commands.GrantTurn(1, 1))
    counted.at(1_000_000, events.TurnPaused(1, Usage()))
    counted.at(5_000_000, commands.GrantTurn(1, 1))
    counted.at(6_000_000, events.TurnReleased(1, Cause.BOUNDARY, Usage()))
    assert counted.value("turn_seconds_total", device="host0") == pytest.approx(2.0)


def test_memory_that_is_asked_for(counted: Counted) -> None:
    counted.at(0, events.MemoryRequested(1, MemoryClass.PERSISTENT, 100))
    counted.at(0, events.MemoryRequested(2, MemoryClass.EPHEMERAL, 100))
    counted.at(0, events.MemoryRequested(3, MemoryClass.PERSISTENT, 100))
    counted.at(500_000, commands.GrantMemory(1, Memory(100), MemoryClass.PERSISTENT))
    counted.at(600_000, commands.GrantMemory(1, Memory(50)))  # answers nothing
    counted.at(700_000, commands.DenyMemory(2, MemoryClass.EPHEMERAL, Reason("x", "full")))
    counted.at(800_000, events.RequestWithdrawn(3, MemoryClass.PERSISTENT))
    counted.at(900_000, events.Offloaded(1), events.OffloadFailed(2, "no room"))
    assert counted.value("memory_requests_total", device="host0", answer="granted") == 1
    assert counted.value("memory_requests_total", device="host0", answer="denied") == 1
    assert counted.value("memory_wait_seconds_sum", device="host0") == pytest.approx(0.5)
    assert counted.value("offloads_total", device="host0", result="moved") == 1
    assert counted.value("offloads_total", device="host0", result="failed") == 1


def test_jobs_of_an_earlier_daemon_are_not_submitted_again_and_keep_their_turns(counted: Counted) -> None:
    counted.at(0, events.RestartBegan(), events.Submitted(1, JobSpec(0)), adopted(1, holds_turn=True))
    counted.at(0, events.RestartEnded(), events.Submitted(2, JobSpec(0)))
    counted.at(1_000_000, events.TurnReleased(1, Cause.EXIT, Usage()))
    assert counted.value("jobs_submitted_total") == 1
    assert counted.value("turn_seconds_total", device="host0") == pytest.approx(1.0)


def test_ends_and_retries(counted: Counted) -> None:
    counted.at(0, commands.RetryJob(1, 2, Attempt("out of memory", out_of_memory=True), None))
    counted.at(0, commands.RetryJob(1, 3, Attempt("exit status 1"), None))
    counted.at(0, commands.EndJob(1, Outcome.FAILED))
    counted.at(0, events.PolicyTimedOut("policy", 0))
    assert counted.value("job_retries_total", why="memory") == 1
    assert counted.value("job_retries_total", why="other") == 1
    assert counted.value("jobs_ended_total", outcome="failed") == 1
    assert counted.value("jobs_ended_total", outcome="lost") == 0
    assert counted.value("policy_timeouts_total", sort="policy") == 1


def series(registry: CollectorRegistry) -> int:
    return sum(len(metric.samples) for metric in registry.collect())


def test_ten_thousand_jobs_make_no_more_series_than_one(counted: Counted, moments: random.Random) -> None:
    for cause in Cause:
        counted.at(0, commands.GrantTurn(1, 1), events.TurnReleased(1, cause, Usage(switch_cost_us=1)))
    counted.at(0, events.TurnWanted(1), commands.GrantTurn(1, 1))
    before = series(counted.registry)
    for job in range(2, 10_002):
        counted.at(job, events.Submitted(job, JobSpec(moments.randrange(1 << 32), name=f"job {job}")))
        counted.at(job, commands.StartJob(job, "host0", 1))
        counted.at(job, events.TurnWanted(job), commands.GrantTurn(1, job))
        counted.at(job, events.TurnReleased(job, moments.choice(list(Cause)), Usage(switch_cost_us=job)))
        counted.at(job, events.TurnWanted(job), commands.GrantTurn(1, job))
        counted.at(job, events.Detached(job) if job % 2 else commands.EndJob(job, Outcome.SUCCEEDED))
    assert series(counted.registry) == before
