"""More jobs than memory: who leaves, who comes back, and what that costs; small cases worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.core.commands import CloseLane, Command, EndJob, GrantMemory, Offload, OpenLane, ResizeLane
from carpool.core.events import Event, Offloaded
from carpool.core.model import Allocation, Micros, Outcome, Oversubscribe, Settings
from carpool.core.policies import available_policies
from carpool.sim.driver import Simulation, simulate
from carpool.sim.model.options import COPY_BYTES_PER_US, Options
from carpool.sim.model.result import JobResult, Result
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.results.summary import summarize
from tests.examples import examples
from tests.sim.made_results import check_memory, recording

MS: Micros = 1000
SECOND: Micros = 1_000_000
#: Bytes that are moved in 1 ms.
UNIT = COPY_BYTES_PER_US * MS
DEVICE = 10 * UNIT
NO_BOUND = 1_000_000


def job(name: str, units: int, takes_s: float, *, at: Micros = 0, host_us: Micros = 0, ephemeral: int = 0,
        **more: int) -> TraceJob:  # fmt: skip
    """``units`` persistent of the device's 10; iterations of 10 ms on the device, and time on the host."""
    iterations = round(takes_s * SECOND) // (10 * MS + host_us)
    memory = {"persistent": units * UNIT, "ephemeral": ephemeral * UNIT}
    plain = TraceJob(name, at, iterations * (10 * MS + host_us), 1, iterations, 10 * MS, host_us)
    return replace(plain, **memory, **more)


def options(policy: str = "tq", mode: Oversubscribe = Oversubscribe.AUTO, **more: int | None) -> Options:
    chosen = Settings(policy=policy, growth_step=1, **more)  # type: ignore[arg-type]
    return Options(settings=chosen, device_memory=DEVICE, oversubscribe=mode, record=True)


def run(jobs: Sequence[TraceJob], chosen: Options) -> list[JobResult]:
    """With all that must hold whatever happens."""
    books = Books(chosen)
    result = simulate(jobs, chosen, witness=books)
    check(result)
    assert books.nothing_left()
    return result.jobs


class Books:
    """Bytes on each device, added up from what the core commands: at no moment more than there are."""

    def __init__(self, chosen: Options) -> None:
        self._capacity = chosen.device_memory * chosen.devices
        self._held: dict[tuple[str, int], int] = {}
        self._leaving: set[int] = set()

    def __call__(self, now: Micros, happened: Event | Command) -> None:
        match happened:
            case OpenLane(lane=lane, size=size) | ResizeLane(lane=lane, size=size):
                self._held["lane", lane] = size
            case CloseLane(lane=lane):
                self._held["lane", lane] = 0
            case GrantMemory(job=number, memory=memory):
                self._held["job", number] = memory.persistent
            case EndJob(job=number):
                self._held["job", number] = 0
            case Offload(job=number):
                assert number not in self._leaving, "asked twice"
                self._leaving.add(number)
            case Offloaded(job=number):
                self._leaving.discard(number)
        assert sum(self._held.values()) <= self._capacity, (now, happened)

    def nothing_left(self) -> bool:
        return not any(self._held.values())


def check(result: Result) -> None:
    check_memory(result)
    fastest = max(result.options.offload_bytes_per_us, result.options.restore_bytes_per_us)
    for one in result.jobs:
        assert one.moving_us * fastest >= (one.moved_bytes if fastest else 0)
        assert one.moved_bytes <= 2 * one.offloads * one.job.persistent


def ends(results: Sequence[JobResult]) -> list[Micros]:
    assert all(one.outcome is Outcome.SUCCEEDED for one in results), results
    return [one.ended_us for one in results]


def moves(results: Sequence[JobResult]) -> list[int]:
    return [one.offloads for one in results]


# Two jobs of 0.9 device


def test_two_jobs_of_nine_tenths_alternate() -> None:
    """Turns of 1 s.  Out 9 ms, back 9 ms: 0 A 1 | out | 1.009 B 2.009 | out, back | 2.027 A 3.027 | 3.045 B 4.045 |
    4.063 A 5.063, its end: nobody has to leave any more | back | 5.072 B 6.072.
    """
    pair = [job("A", 9, 3), job("B", 9, 3)]
    results = run(pair, options(quantum_us=SECOND, max_move_share_ppm=NO_BOUND))
    assert ends(results) == [5_063 * MS, 6_072 * MS]
    assert moves(results) == [2, 2]
    assert [one.moved_bytes for one in results] == [4 * 9 * UNIT, 4 * 9 * UNIT]
    assert [one.moving_us for one in results] == [4 * 9 * MS, 4 * 9 * MS]
    # Coming back is part of a turn, leaving is not.
    assert [one.service_us for one in results] == [3_018 * MS, 3_018 * MS]


@pytest.mark.parametrize(
    ("units", "mode", "ends_s"),
    [(9, Oversubscribe.OFF, [3, 6]), (5, Oversubscribe.AUTO, [5, 6]), (5, Oversubscribe.OFF, [5, 6])],
)
def test_who_may_not_be_moved_or_fits_is_never_moved(units: int, mode: Oversubscribe, ends_s: list[int]) -> None:
    """5 + 5 fit into 10, and without a move nothing differs between the modes; of 9 + 9 the second waits."""
    results = run([job("A", units, 3), job("B", units, 3)], options(mode=mode, quantum_us=SECOND))
    assert ends(results) == [end * SECOND for end in ends_s]
    assert moves(results) == [0, 0]


@pytest.mark.parametrize("rate", [0, 500, 1000])
def test_the_rate_is_what_moving_costs(rate: int) -> None:
    """Two moves out, two back, one more out and back until A ends: see above; 0 is in no time."""
    pair = [job("A", 9, 0.03), job("B", 9, 0.03)]
    chosen = options(quantum_us=10 * MS, max_move_share_ppm=NO_BOUND)
    results = simulate(pair, replace(chosen, offload_bytes_per_us=rate, restore_bytes_per_us=rate)).jobs
    each = 9 * UNIT // rate if rate else 0
    assert max(ends(results)) == 60 * MS + 8 * each


# The bound


@pytest.mark.parametrize("policy", ["tq", "fair", "pack"])
def test_moving_stays_below_its_share(policy: str) -> None:
    """Turns of 50 ms would spend 18 ms of each 68 on moving.  By default at most 5 % of the time goes there."""
    pair = [job("A", 9, 8), job("B", 9, 8)]
    bounded = simulate(pair, options(policy, quantum_us=50 * MS))
    free = simulate(pair, options(policy, quantum_us=50 * MS, max_move_share_ppm=NO_BOUND))
    assert 0.03 < summarize(bounded).moving <= 0.05
    assert summarize(free).moving > 0.2
    assert summarize(free).offloads > 5 * summarize(bounded).offloads > 0


def test_the_core_learns_how_fast_memory_moves() -> None:
    """At first it takes 2 GB/s for granted, three times too slow: later turns are three times shorter."""
    pair = [job("A", 9, 8), job("B", 9, 8)]
    result = simulate(pair, options("tq", quantum_us=50 * MS))
    lengths = [span.end_us - span.begin_us for span in sorted(recording(result).spans, key=lambda span: span.begin_us)]
    assert lengths[0] == pytest.approx(27 * MS / 0.05, abs=20 * MS)  # for B has nothing to bring back yet
    assert lengths[-4] == pytest.approx(18 * MS / 0.05, abs=20 * MS)


# Turns


def test_an_idle_one_loses_the_rest_of_its_quantum() -> None:
    """A needs the device for 10 ms of 5 s.  B has it after the grace of 20 ms, and A never waits for long."""
    first, second = run([job("A", 1, 50, host_us=4990 * MS), job("B", 1, 20)], options(quantum_us=SECOND))
    assert second.ended_us < 20.5 * SECOND
    assert first.ended_us <= 50 * SECOND + 4 * (SECOND + 10 * MS)


@pytest.mark.parametrize(("takes", "host_ms", "begins_ms"), [(0.12, 20, 120), (0.14, 60, 35)])
def test_a_watched_job_has_the_whole_grace(takes: float, host_ms: int, begins_ms: int) -> None:
    """It has been on the host since 10 ms when, at 15, somebody comes: until 35 it may come back, and does at 30."""
    watched = job("A", 1, takes, host_us=host_ms * MS)
    first, second = run([watched, job("B", 1, 0.5, at=15 * MS)], options("fifo"))
    assert second.started_us == begins_ms * MS
    assert begins_ms == 35 or ends([first]) == [120 * MS]


# Whatever happens

#: What is not declared is granted with a little to spare: nobody needs the whole device.
MOST_UNITS = 9


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    """Up to eight jobs that need up to eight devices together."""
    made: list[TraceJob] = []
    for number in range(draw(st.integers(1, 8))):
        units = draw(st.integers(0, MOST_UNITS))
        one = job(
            str(number),
            units,
            draw(st.sampled_from((0.05, 0.2, 1.0, 3.0))) + 2,
            at=draw(st.integers(0, 20)) * 50 * MS,
            host_us=draw(st.sampled_from((0, 0, 5, 30, 400))) * MS,
            ephemeral=draw(st.integers(0, MOST_UNITS - units)),
            owner=draw(st.sampled_from((0, 0, 0, 1))),
            weight=draw(st.sampled_from((100, 100, 300))),
        )
        made.append(one)
    return made


@st.composite
def worlds(draw: st.DrawFn) -> Options:
    chosen = options(
        draw(st.sampled_from(available_policies())),
        draw(st.sampled_from(tuple(Oversubscribe))),
        quantum_us=draw(st.sampled_from((None, 0, 100 * MS, SECOND))),
        max_move_share_ppm=draw(st.sampled_from((50_000, NO_BOUND))),
        host_store=draw(st.sampled_from((None, None, 0, DEVICE // 2, 3 * DEVICE))),
        forced_after_us=draw(st.sampled_from((10 * SECOND, 3 * MS))),
    )
    rates = draw(st.sampled_from(((6000, 6000), (600, 6000), (0, 0))))
    return replace(
        chosen,
        offload_bytes_per_us=rates[0],
        restore_bytes_per_us=rates[1],
        declare_memory=draw(st.booleans()),
        switch_cost_us=draw(st.sampled_from((0, 500))),
    )


@pytest.mark.slow
@settings(max_examples=examples(150, fewer=50), deadline=None)
@given(traces(), worlds())
def test_all_jobs_end_within_the_device(jobs: list[TraceJob], chosen: Options) -> None:
    books = Books(chosen)
    result = Watched(jobs, chosen, books).finished()
    check(result)
    assert books.nothing_left()
    assert len(ends(result.jobs)) == len(jobs)
    for one in result.jobs:
        # Alone it takes its duration; coming back costs time in its turns, leaving none.
        assert one.jct_us >= one.job.duration_us
        device_us = (one.job.iterations or 0) * 10 * MS
        assert one.service_us >= device_us


class Watched(Simulation):
    """Looks at the core after every event."""

    def _handle(self, event: Event) -> None:
        super()._handle(event)
        self._machine.check()

    def finished(self) -> Result:
        self.run()
        return self.result(0.0)


@settings(max_examples=examples(60, fewer=25), deadline=None)
@given(st.lists(st.integers(5, 10), min_size=2, max_size=8), st.sampled_from(available_policies()))
def test_busy_and_moving_time_add_up(sizes: list[int], policy: str) -> None:
    """No two fit together and none is ever on the host: in one lane somebody computes, or something moves."""
    jobs = [job(str(number), units, 1) for number, units in enumerate(sizes)]
    result = simulate(jobs, options(policy, Oversubscribe.ON, quantum_us=100 * MS, max_move_share_ppm=NO_BOUND))
    moving = sum(one.moving_us for one in result.jobs)
    work = len(jobs) * SECOND
    assert result.busy_us == work
    assert sum(one.service_us for one in result.jobs) == work + sum(in_us(result))
    assert work <= max(ends(result.jobs)) <= work + moving


def in_us(result: Result) -> Iterator[Micros]:
    """Coming back takes as long as leaving did, at equal rates, and nothing is left behind at the end."""
    return (one.moving_us // 2 for one in result.jobs)


@pytest.mark.parametrize("mode", Oversubscribe)
def test_whole_devices_know_nothing_of_it(mode: Oversubscribe) -> None:
    whole = Settings(policy="srtf", allocation=Allocation.DEVICES, host_store=0)
    jobs = [replace(job(str(number), 9, 1 + number), gpus=1 + number % 2) for number in range(6)]
    result = simulate(jobs, Options(2, whole, DEVICE, oversubscribe=mode))
    assert result.jobs == simulate(jobs, Options(2, replace(whole, host_store=None))).jobs
    assert moves(result.jobs) == [0] * 6
