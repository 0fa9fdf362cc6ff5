"""Arrays of which only so many elements run at once, in the core."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from carpool.core import events
from carpool.core.commands import EndJob, StartJob
from carpool.core.model import JobPhase, Outcome
from tests.core.scenario import Scenario, started

#: What users may ask for a job that waits.
ASKED = (
    events.CancelRequested,
    *(partial(kind, by=by) for kind in (events.HoldChanged, events.PauseChanged) for by in ("ann", None)),
)


@pytest.fixture
def made() -> Scenario:
    made = Scenario()
    made.device("a", 1024)
    return made


def exited(made: Scenario, job: int, code: int = 0) -> list[int]:
    """The process of a job that was started has run, and ends."""
    if made.job(job).phase is JobPhase.STARTING:
        made.send(events.ProcessStarted(job))
    return started(made.exit(job, code))


def test_the_next_element_starts_when_one_has_ended(made: Scenario) -> None:
    first = [started(made.submit(job, array=1, at_most=2)) for job in (1, 2, 3, 4)]
    assert first == [[1], [2], [], []]
    reason = made.machine.explain(3)
    assert reason is not None and (reason.code, reason.text) == ("array", "2 jobs of array 1 run at once")
    assert exited(made, 2) == [3]
    assert started(made.submit(5)) == [5]  # of no array
    made.send(events.CancelRequested(4))  # it has no place, and gives none back
    assert exited(made, 1) == []


def test_an_element_that_is_tried_again_keeps_its_place(made: Scenario) -> None:
    made.submit_each(1, 2, array=1, at_most=1, retries=1, retry_pause_us=1000)
    assert exited(made, 1, code=1) == []
    assert started(made.at(10).last) == [1]
    assert exited(made, 1, code=1) == [2]


def test_an_element_that_waits_for_others_takes_no_place_meanwhile(made: Scenario) -> None:
    made.submit(9)
    made.submit(1, array=1, at_most=1, after=(9,))
    assert started(made.submit(2, array=1, at_most=1)) == [2]
    assert exited(made, 9) == []
    assert exited(made, 2) == [1]


def test_an_element_that_may_not_start_lets_the_next_one_go_first(made: Scenario) -> None:
    assert started(made.submit(1, array=1, at_most=1, begin_us=1_000_000)) == []
    assert started(made.submit(2, array=1, at_most=1, held_by="ann")) == []
    assert started(made.submit(3, array=1, at_most=1, paused_by="ann")) == []
    assert started(made.submit(4, array=1, at_most=1)) == [4]
    for event in (events.HoldChanged(2, None), events.PauseChanged(3, None)):
        assert started(made.send(event)) == []
        assert made.why(event.job) == "jobs of array 1 run one at a time"
    made.send(events.HoldChanged(2, "ann"))
    assert exited(made, 4) == [3]
    assert exited(made, 3) == []
    assert started(made.at(2_000).last) == [1]


@pytest.fixture
def waiting(made: Scenario) -> Scenario:
    """Job 1 has the place of its array, and waits for the device; job 2 waits for the place."""
    made.submit(9, exclusive=True)
    made.submit_each(1, 2, array=1, at_most=1)
    return made


@pytest.mark.parametrize("kind", [events.HoldChanged, events.PauseChanged])
def test_an_element_that_waits_for_a_device_and_is_held_gives_its_place_away(
    waiting: Scenario, kind: type[events.HoldChanged | events.PauseChanged]
) -> None:
    waiting.send(kind(1, "ann"))
    waiting.send(kind(1, None))
    assert exited(waiting, 9) == [2]
    assert exited(waiting, 2) == [1]


def test_an_element_that_is_to_begin_later_gives_its_place_away(waiting: Scenario) -> None:
    spec = waiting.machine._state.jobs[1].spec
    waiting.send(events.JobChanged(1, replace(spec, begin_us=1_000_000_000)))
    assert exited(waiting, 9) == [2]


def test_an_element_that_is_paused_while_it_runs_keeps_its_place(made: Scenario) -> None:
    made.submit_each(1, 2, array=1, at_most=1)
    made.send(events.ProcessStarted(1))
    assert started(made.send(events.PauseChanged(1, "ann"))) == []
    made.send(events.RequeueRequested(1, "ann"))
    assert exited(made, 1) == [2]  # it is paused, and waits from the beginning
    made.send(events.PauseChanged(1, None))
    assert exited(made, 2) == [1]


@pytest.mark.parametrize("seed", range(20))
def test_never_more_and_all_in_the_end(made: Scenario, seed: int) -> None:
    draw = random.Random(seed)
    running, outcomes = set[int](), dict[int, Outcome]()
    waiting = list(range(1, 31))
    limits = {0: 1, 1: 3, 2: 5}

    def follow(commands: list[object]) -> None:
        for command in commands:
            if isinstance(command, StartJob):
                running.add(command.job)
            elif isinstance(command, EndJob):
                running.discard(command.job)
                outcomes[command.job] = command.outcome
        for array, most in limits.items():
            assert sum(job % 3 == array for job in running) <= most

    while len(outcomes) < 30:
        what = draw.random()
        if what < 0.5 and waiting:
            job = waiting.pop(0)
            follow(list(made.submit(job, array=100 + job % 3, at_most=limits[job % 3])))
        elif what < 0.6 and running:
            follow(list(made.send(events.CancelRequested(draw.choice(sorted(running))))))
        elif what < 0.75:
            queued = [n for n, job in made.machine._state.jobs.items() if job.phase is JobPhase.QUEUED]
            follow(list(made.send(draw.choice(ASKED)(draw.choice(queued)))) if queued else [])
        elif running:
            job = draw.choice(sorted(running))
            follow(list(made.send(events.ProcessStarted(job))))
            follow(list(made.send(events.ProcessExited(job, draw.choice([0, 1]), None))))
    assert sorted(outcomes) == list(range(1, 31))
    assert made.machine._state.arrays == {}


def test_reasons_call_an_element_what_people_call_it(made: Scenario) -> None:
    made.submit(5, array=5, index=0)
    made.submit(6, array=5, index=1, exclusive=True)
    waiting: list[tuple[int, Mapping[str, object], str]] = [
        (6, {}, "waiting for exclusive use of a: job 5_0 there"),
        (7, {"after": (6,)}, "waiting for job 5_1"),
        (8, {"held_by": "ann", "array": 8, "index": 3}, "held by ann; carpool release 8_3 lets it start"),
    ]
    for job, submission, text in waiting:
        if submission:
            made.submit(job, **submission)
        reason = made.machine.explain(job)
        assert reason is not None and reason.text == text
    ended = [command for command in made.send(events.CancelRequested(6)) if isinstance(command, EndJob)]
    assert [end.reason.text for end in ended if end.reason and end.job == 7] == [
        "job 5_1, which it waits for, ended: cancelled"
    ]
