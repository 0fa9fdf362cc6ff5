"""Phases of an attempt, from facts, seats and readings, on a clock of the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.daemon.jobs.breakdown import AWAY
from carpool.daemon.jobs.breakdown_clocks import HostTime, PaceCounters, PaceTime, ProcessorTimes
from carpool.facts.fact import What
from carpool.telemetry.process_trees import ProcessorTime

MS = 1000


def test_time_on_the_host_is_start_up_then_between_turns_then_the_end() -> None:
    host = HostTime(100)
    host.leaves(What.PERSISTENT, 130)  # it wants memory before its first turn
    host.comes_back(What.PERSISTENT, 150)
    assert host.starts
    for what, begin, end in (
        (What.WAITS, 155, 160),
        (What.TURN, 160, 200),
        (What.WAITS, 207, 300),
        (What.TURN, 300, 400),
    ):
        host.leaves(what, begin)
        host.comes_back(what, end)
    host.stop(420)
    assert (host.startup_us, host.between_us, host.pending_us, host.starts) == (30 + 5, 7, 20, False)


def test_host_time_before_the_first_iteration_has_ended_is_start_up() -> None:
    host = HostTime(0)
    for begin, end in ((10, 20), (25, 30)):
        host.leaves(What.TURN, begin)
        host.comes_back(What.TURN, end)
    host.warmed_up()
    host.leaves(What.TURN, 32)
    assert (host.startup_us, host.between_us) == (10 + 5, 2)


def test_a_request_in_a_turn_does_not_end_the_turn() -> None:
    host = HostTime(0)
    host.leaves(What.TURN, 10)
    host.leaves(What.EPHEMERAL, 20)
    host.comes_back(What.EPHEMERAL, 30)
    host.comes_back(What.TURN, 40)
    host.stop(41)
    assert (host.startup_us, host.pending_us) == (10, 1)


@given(st.lists(st.tuples(st.sampled_from(sorted(AWAY)), st.booleans(), st.integers(0, 50))), st.integers(0, 50))
def test_every_moment_is_on_the_host_or_away(steps: list[tuple[str, bool, int]], last: int) -> None:
    host, now, away_us = HostTime(0), 0, 0
    for what, leaves, took in steps:
        away_us += took if host.away else 0
        now += took
        (host.leaves if leaves else host.comes_back)(what, now)
    away_us += last if host.away else 0
    host.stop(now + last)
    assert host.startup_us + host.between_us + host.pending_us + away_us == now + last


def paced(*steps: PaceCounters | bool) -> tuple[PaceCounters, PaceCounters]:
    """Boundaries, and changes of the company: alone or not."""
    pace = PaceTime()
    for step in steps:
        if isinstance(step, bool):
            pace.meets(step)
        else:
            pace.boundary(step)
    pace.meets(True)
    return pace.alone, pace.beside


def test_a_pace_is_that_between_boundaries_with_the_same_company() -> None:
    alone, beside = paced(
        PaceCounters(1, 900),
        PaceCounters(2, 1000),
        PaceCounters(4, 1200),
        False,
        PaceCounters(5, 1333),
        PaceCounters(8, 1933),
    )
    assert alone == PaceCounters(3, 300), "neither the first iteration counts, nor that during which another job came"
    assert beside == PaceCounters(3, 600)


@pytest.mark.parametrize(
    "steps",
    [(), (PaceCounters(1, 10),), (PaceCounters(1, 10), False, True, PaceCounters(2, 30))],
    ids=["none", "one boundary", "one boundary with each company"],
)
def test_less_than_two_boundaries_say_nothing(steps: tuple[PaceCounters | bool, ...]) -> None:
    assert paced(*steps) == (PaceCounters(), PaceCounters())


def test_another_process_counts_anew() -> None:
    alone, _ = paced(PaceCounters(7, 700), PaceCounters(1, 5), PaceCounters(3, 25))
    assert alone == PaceCounters(2, 20)


def readings(*found: ProcessorTime | None) -> Iterator[ProcessorTime | None]:
    yield from found


def test_the_processor_time_of_the_end_is_that_after_the_last_work() -> None:
    """At 1.0 s it had used 0.9 s, at 1.2 s 1.1 s: at 1.1 s, when it last worked, 1.0 s.  At 1.6 s it has used 1.4 s."""
    times = ProcessorTimes(latest=ProcessorTime(1000 * MS, 900 * MS, 50 * MS))
    more = readings(ProcessorTime(1200 * MS, 1100 * MS, 60 * MS), ProcessorTime(1600 * MS, 1400 * MS, 155 * MS))
    times.look(1100 * MS, 1200 * MS, lambda: next(more))
    times.look(1100 * MS, 1250 * MS, lambda: pytest.fail("it has just been read"))
    times.look(1100 * MS, 1600 * MS, lambda: next(more))
    assert times.worked == ProcessorTime(1100 * MS, 1000 * MS, 55 * MS)
    found = times.after(1100 * MS, 1000 * MS)  # twice as long as it was read
    assert found is not None and (found.cpu_us, found.delay_us) == (800 * MS, 200 * MS)
    assert times.after(1300 * MS, 1000 * MS) is None, "it has worked since"


def test_what_cannot_be_read_is_not_known() -> None:
    times = ProcessorTimes()
    times.look(1100, 1200, lambda: None)
    assert times.after(1100, 1000) is None
    times.look(1300, 1400, lambda: ProcessorTime(1400, 7, 7))
    assert times.after(1300, 1000) is None, "there is no reading from before"
