"""Engines in the simulator, worked out by hand in milliseconds, and what they leave training by the core's rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carpool.core.commands import GrantTurn, Offload, PauseTurn, RequestYield
from carpool.core.events import ProcessExited, ServiceBusy, Submitted, TurnPaused, TurnReleased
from carpool.core.model import MIB, Outcome, Settings
from carpool.sim.model.served_engines import EngineRequest, EngineResult
from carpool.sim.model.trace_job import TraceJob
from tests.sim.services.serving import MS, FiniteStory, Story, engine, engine_books, of_services, serve_engines

#: It could compute for longer than any engine here.
JOB = TraceJob("t", 0, 60_000 * MS, iterations=1200, iteration_us=50 * MS)
RATE = 6000  # bytes per microsecond
S = 1000


def figures(result: EngineResult) -> tuple[list[float], list[float], list[float]]:
    """First tokens, further tokens and answers, in milliseconds."""
    first, token, whole = result.first_us, result.token_us, result.latencies_us
    return [each / MS for each in first], [each / MS for each in token], [each / MS for each in whole]


def test_one_answer_alone() -> None:
    (one,) = engine_books(serve_engines(engine([100], tokens=11, start_us=20 * MS, weights=60_000_000)))
    assert figures(one) == ([20 + 10 + 30], [5], [20 + 10 + 30 + 10 * 5]), "it starts, loads, and computes"
    assert (one.starts, one.tokens, one.ended_us) == (1, 11, 210 * MS)


def test_training_pauses_at_once_and_goes_on_after_the_last_request() -> None:
    story: Story = []
    job = replace(JOB, duration_us=1000 * MS, iterations=20)
    result = serve_engines(engine([110, 120], begin_us=0), jobs=[job], story=story)
    kinds = (PauseTurn, TurnPaused, ServiceBusy, GrantTurn, RequestYield, TurnReleased)
    told = [(now / MS, type(each).__name__, getattr(each, "job", 0)) for now, each in story if isinstance(each, kinds)]
    assert told[1:] == [
        (110, "ServiceBusy", 2),
        (110, "PauseTurn", 1),
        (110, "TurnPaused", 1),
        (110, "GrantTurn", 2),
        (171, "ServiceBusy", 2),
        (171, "RequestYield", 2),
        (171, "TurnReleased", 2),
        (171, "GrantTurn", 1),
    ], "as the daemon's core does it (tests/core/turns/test_engines.py), in the middle of an iteration"
    assert result.jobs[0].ended_us == 1061 * MS
    assert figures(engine_books(result)[0])[0] == [30, 50]


def test_requests_within_the_linger_share_a_turn() -> None:
    story: Story = []
    serve_engines(engine([0, 30.999, 62]), story=story)
    assert sum(isinstance(each, ServiceBusy) and each.busy for _, each in story) == 2


def test_without_requests_for_its_ttl_it_ends_and_starts_again_with_the_next() -> None:
    story: Story = []
    (one,) = engine_books(serve_engines(engine([0, 400, 1000], ttl_us=500 * MS, start_us=10 * MS), story=story))
    assert one.starts == 2
    assert figures(one)[0] == [40, 30, 40]
    assert [now / MS for now, each in story if isinstance(each, ProcessExited)] == [930]


def test_a_process_that_is_kept_for_a_time_ends_then_or_with_its_last_request() -> None:
    story: Story = []
    jobs = [replace(JOB, duration_us=1000 * MS, iterations=20)]
    kept = engine([300], end_us=500 * MS), engine([], end_us=200 * MS, begin_us=0), engine([690], end_us=700 * MS)
    serve_engines(*kept, jobs=jobs, story=story)
    ends = {each.job: now / MS for now, each in story if isinstance(each, ProcessExited)}
    assert ends == {2: 200, 3: 500, 4: 721, 1: 1062}


def test_more_requests_than_it_takes_are_refused() -> None:
    (one,) = engine_books(serve_engines(engine([0, 1, 2, 40], most=2)))
    assert (one.refused, len(one.latencies_us)) == (1, 3)


def test_requests_of_an_engine_that_fits_no_device_fail() -> None:
    (one,) = engine_books(serve_engines(engine([0, 1, 2], cache=500 * MIB), device_memory=400 * MIB))
    assert (one.failed, one.settled, one.starts) == (3, 3, 3)


def test_an_engine_that_waits_for_a_place_answers_once_it_has_one() -> None:
    jobs = [replace(JOB, duration_us=1000 * MS, iterations=20)]
    (one,) = engine_books(serve_engines(engine([5]), jobs=jobs, settings=Settings(max_jobs=1)))
    assert figures(one)[0] == [1000 - 5 + 30]


@pytest.mark.parametrize("percent", [30, 60, 85])
def test_training_has_the_time_that_a_busy_engine_leaves(percent: int) -> None:
    """In each second the engine has a request, which computes but for the linger, and then lets go."""
    busy = engine([S * second for second in range(20)], prompt=10 * percent - 1, begin_us=0)
    result = serve_engines(busy, jobs=[JOB], settings=Settings(policy="fair"))
    (job,) = result.jobs
    one = engine_books(result)[0]
    assert set(one.first_us) == {(10 * percent - 1) * MS}, "below its share it is never asked to let go"
    assert of_services(result).turns_us == 20 * 10 * percent * MS
    assert job.ended_us == JOB.duration_us + of_services(result).turns_us


@pytest.mark.parametrize("share", [500_000, 900_000])
def test_an_engine_that_is_always_busy_leaves_training_its_share(share: int) -> None:
    """One long request: beside training it has its share of the time, and not more by more than the window's part."""
    work, quantum = 40 * S, 100
    settings = Settings(service_share_ppm=share, quantum_us=quantum * MS)
    result = serve_engines(engine([0], prompt=work, begin_us=0), jobs=[JOB], settings=settings)
    (taken,) = engine_books(result)[0].latencies_us
    before = 10 * S * share // 10**6  # without a debt
    rest = (work - before) * 10**6 // share
    assert before + rest - S <= taken / MS <= before + rest + S
    assert of_services(result).turns_us == pytest.approx(work * MS, abs=5 * MS)
    assert result.jobs[0].pauses > 40 // 2


def test_training_that_does_not_fit_beside_an_engine_that_is_always_busy_goes_on() -> None:
    """Its quantum begins once its memory is back: moving both ways takes 200 ms, longer than the quantum."""
    training = replace(JOB, duration_us=1000 * MS, iterations=20, persistent=600 * MIB)
    settings = Settings(service_share_ppm=500_000, quantum_us=100 * MS)
    one = replace(engine([0], prompt=60 * S, begin_us=0), weights=600 * MIB)
    result = serve_engines(one, jobs=[training], settings=settings, device_memory=1000 * MIB)
    assert result.jobs[0].ended_us < engine_books(result)[0].latencies_us[0], "it has ended beside the engine"


def test_two_engines_that_do_not_fit_together_alternate_at_the_rate_of_copies() -> None:
    """Each answer waits until the other engine has left, and its own memory is back."""
    size = 600 * MIB
    times = range(1000, 9000, 1000)
    engines = [
        replace(engine(at, begin_us=0, cache=size), name=name)
        for name, at in (("a", times), ("b", [time + 500 for time in times]))
    ]
    story: Story = []
    result = serve_engines(*engines, device_memory=1000 * MIB, story=story)
    move = -(-size // RATE) / MS
    for one in engine_books(result):
        assert figures(one)[0][1:-1] == [pytest.approx(2 * move + 30, rel=0.01)] * 6
        assert one.moved_bytes <= 2 * one.offloads * size
    assert sum(isinstance(each, Offload) for _, each in story) == sum(one.offloads for one in engine_books(result))


def test_engines_that_load_at_once_and_do_not_fit_together_all_come_up() -> None:
    """A turn lasts a quantum beyond the time in which its memory comes back: 70 ms, more than the quantum."""
    engines = [replace(engine([number]), name=str(number), weights=400 * MIB) for number in range(3)]
    result = serve_engines(*engines, device_memory=1000 * MIB, story=FiniteStory())
    assert [len(each.first_us) for each in engine_books(result)] == [1, 1, 1]


def test_an_idle_engine_leaves_for_training_and_comes_back() -> None:
    job = replace(JOB, duration_us=1000 * MS, iterations=20, submit_us=100 * MS, persistent=700 * MIB)
    idle = engine([0, 3000], cache=600 * MIB)
    result = serve_engines(idle, jobs=[job], device_memory=1000 * MIB)
    (one,) = engine_books(result)
    assert result.jobs[0].outcome is Outcome.SUCCEEDED
    assert (one.offloads, one.moved_bytes) == (1, 2 * 600 * MIB)
    assert figures(one)[0] == [30, pytest.approx(30 + 600 * MIB / RATE / MS, abs=0.01)]


def test_the_core_hears_of_an_engine_as_of_the_daemons() -> None:
    story: Story = []
    serve_engines(engine(priority=70, owner=3, cache=MIB), story=story)
    (submitted,) = [each for _, each in story if isinstance(each, Submitted)]
    service = submitted.spec.service
    assert service is not None and service.engine and service.priority == 70 and submitted.spec.owner == 3


def test_the_same_engines_lead_to_the_same_events() -> None:
    asked = tuple(EngineRequest(at * 70 * MS, 20 * MS, 5) for at in range(40))
    stories: list[Story] = [[], []]
    for story in stories:
        made = replace(engine(), requests=asked, cache=600 * MIB, ttl_us=20 * MS)
        jobs = [replace(JOB, duration_us=1000 * MS, iterations=20, persistent=700 * MIB)]
        serve_engines(made, jobs=jobs, device_memory=1000 * MIB, story=story)
    assert stories[0] == stories[1] and len(stories[0]) > 50
