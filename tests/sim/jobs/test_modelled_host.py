"""Jobs that share the cores of a machine: cases worked out by hand, and what holds for every trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.core.model import GIB, Allocation, Micros, Settings
from carpool.sim.driver import simulate
from carpool.sim.jobs import modelled_host
from carpool.sim.jobs.job_progress import HostPhase
from carpool.sim.model.cores import Cores, parse_cores
from carpool.sim.model.options import Concurrent, Options, Timeslice, check_options
from carpool.sim.model.result import Result
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob
from tests.examples import examples
from tests.sim.reference import SECOND
from tests.sim.test_oversubscription import traces, worlds

MS: Micros = 1000
TWO = parse_cores("2:1.8")
MANY = parse_cores("4096")


def job(
    name: str = "a", *, at: float = 0, start: float = 0, iterations: int = 1, device: float = 1, host: float = 0,
    end: float = 0, **more: Any,
) -> TraceJob:  # fmt: skip
    """Times in seconds: ``device`` and ``host`` are those of one iteration."""
    device_us, host_us, end_us = (round(time * SECOND) for time in (device, host, end))
    length = round(start * SECOND) + iterations * (device_us + host_us) + end_us
    made = TraceJob(name, round(at * SECOND), length, 1, iterations, device_us, host_us, end_us=end_us)
    return replace(made, **more)


def run(*jobs: TraceJob, devices: int = 0, cores: Cores | None = TWO, **more: Any) -> Result:
    """On a device for each job unless there is a number."""
    options = Options(devices or len(jobs), Settings(policy="fifo"), GIB, cores=cores)
    return simulate(jobs, replace(options, **more))


def ends(result: Result) -> list[float]:
    return [one.ended_us / SECOND for one in result.jobs]


# By hand


def test_three_jobs_that_start_at_once_on_two_cores() -> None:
    """Three demand 3 cores, and get 1.8: each starts at 0.6 of its speed, so 6 s take 10.  Devices are their own."""
    assert ends(run(*(job(name, start=6, device=5) for name in "abc"))) == [15, 15, 15]


def test_what_is_left_goes_on_faster_when_one_has_started() -> None:
    """0 to 10 at 0.6: a has started.  Then b and c, 6 s left, at 0.9 until 16.666667."""
    found = ends(run(job("a", start=6), *(job(name, start=12) for name in "bc")))
    assert found == [11, 17.666667, 17.666667]


def test_a_job_that_comes_later_slows_those_that_start() -> None:
    """0 to 1: a alone.  Then both at 0.9: a has 1.8 s left until 3, b has done 1.8 then and does 1.2 alone."""
    assert ends(run(job("a", start=2.8), job("b", at=1, start=3), cores=TWO)) == [4, 5.2]


def test_the_end_of_a_job_needs_cores_too() -> None:
    """a starts for 4 s while b ends for 2: at 0.9 each, b is over at 2.222223; a has 2 left then."""
    b = job("b", device=0.000001, iterations=1, end=1.8)
    found = run(job("a", start=3.6), b)
    assert ends(found)[1] == pytest.approx(2, abs=3e-6)
    assert ends(found)[0] == pytest.approx(3.8 + 1, abs=3e-6)


def test_processor_time_says_how_many_cores_a_start_demands() -> None:
    """a demands 2 cores, b half of one: 2.5 get 1.8, so both start at 0.72 of their speed."""
    a, b = job("a", start=7.2, startup_cpu_us=round(14.4 * SECOND)), job("b", start=7.2, startup_cpu_us=3_600_000)
    assert ends(run(a, b)) == [11, 11]


def test_a_start_that_only_waits_is_not_slowed() -> None:
    waits = [job(name, start=2, startup_cpu_us=0) for name in "abcd"]
    assert ends(run(*waits)) == [3, 3, 3, 3]


def test_loading_data_is_slowed_and_the_device_is_not() -> None:
    """Half of each iteration is on the host: four jobs demand 2 cores, host time passes at 0.9: 1 / 0.9 + 1 per 2 s."""
    jobs = [job(name, iterations=9, device=1, host=1) for name in "abcd"]
    assert ends(run(*jobs)) == pytest.approx([19, 19, 19, 19], abs=1e-4)
    assert ends(run(*jobs[:2])) == [18, 18]  # two halves of a core


def test_computing_on_host_devices() -> None:
    """Three that compute with one core each: 1.8 of 3."""
    jobs = [job(name, device=3, cores_ppm=WHOLE_PPM) for name in "abc"]
    assert ends(run(*jobs)) == [5, 5, 5]
    assert ends(run(*jobs, cores=None)) == [3, 3, 3]
    assert ends(run(*jobs, cores=parse_cores("4"))) == [3, 3, 3]
    # In lanes of one device: it has no computing of its own that they would share.
    assert ends(run(*jobs, devices=1, settings=Settings(policy="pack"))) == [5, 5, 5]


def test_all_jobs_compute_on_host_devices() -> None:
    """A gang of two with two cores, and one that has said three: 5 cores of 1.8."""
    jobs = [job("a", device=1.8, gpus=2), job("b", device=1.8, cores_ppm=3 * WHOLE_PPM)]
    assert ends(run(*jobs, devices=3, host_devices=True)) == [5, 5]
    assert ends(run(*jobs, devices=3)) == [1.8, 3]


def test_a_job_with_two_threads_demands_two_cores() -> None:
    """Together 3 cores of the 1.8: 0.6 until a has done its 3 s; then b has one core."""
    a, b = job("a", device=3, cores_ppm=2 * WHOLE_PPM), job("b", device=6, cores_ppm=WHOLE_PPM)
    assert ends(run(a, b)) == [5, 8]


def test_a_start_slows_computing_on_host_devices() -> None:
    """Both at 0.9: b starts for 1.8 s until 2, a has done 1.8 of 3 then; computing as before, b for 1 s."""
    a, b = job("a", device=2.7, cores_ppm=WHOLE_PPM), job("b", start=1.8, device=0.9)
    assert ends(run(a, b)) == [2.9, 2.9]


def test_each_machine_has_its_own_cores() -> None:
    """Four jobs start on four devices: two machines of two devices each, or one of four."""
    jobs = [job(name, start=3.6) for name in "abcd"]
    assert ends(run(*jobs, devices_per_host=2)) == [5, 5, 5, 5]
    assert ends(run(*jobs)) == [9, 9, 9, 9]  # 1.8 of 4
    assert ends(run(*jobs, devices_per_host=1)) == [4.6, 4.6, 4.6, 4.6]


def test_jobs_that_wait_for_a_turn_demand_nothing() -> None:
    """One device, turn by turn: there is always one that computes, on its core."""
    jobs = [job(name, iterations=100, device=0.02, cores_ppm=WHOLE_PPM) for name in "ab"]
    assert ends(run(*jobs, devices=1, settings=Settings(policy="fair")))[1] == 4


def test_host_time_after_an_early_release_is_slowed() -> None:
    """On one device in turns: 1 s of device time, 9 s on the host.  Each is alone on the cores, or both are."""
    jobs = [job(name, device=1, host=9) for name in "ab"]
    alone, shared = (run(*jobs, devices=1, cores=cores) for cores in (MANY, TWO))
    assert ends(alone) == ends(run(*jobs, devices=1, cores=None))
    early, late = ends(shared)
    assert ends(alone)[0] < early < ends(alone)[0] / 0.9 and ends(alone)[1] < late


# What is refused


def test_whole_devices_have_no_cores() -> None:
    whole = Settings(policy="fifo", allocation=Allocation.DEVICES)
    with pytest.raises(ValueError, match="for jobs in lanes, not on whole devices"):
        check_options(Options(settings=whole, cores=TWO))


@pytest.mark.parametrize("more", [{"devices_per_host": 0}, {"cores": Cores(())}])
def test_machines_that_cannot_be(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"devices_per_host is 0|must be 1"):
        check_options(Options(**more))


# Whatever happens

lengths = st.sampled_from([0, 0, 1, 40, 700, 3000]).map(lambda number: number * MS)
shares = st.sampled_from([None, 0, 300_000, WHOLE_PPM, 2_500_000])
curves = st.sampled_from(["1", "2:1.8", "2", "3:1.5,1.6", "8", "4:1.9,2.5,2.5"]).map(parse_cores)


@st.composite
def lone_jobs(draw: st.DrawFn) -> list[TraceJob]:
    """Up to six jobs; each will have a device of its own."""
    made = []
    for number in range(draw(st.integers(1, 6))):
        start, end, device, host = (draw(lengths) for _ in range(4))
        count, device = draw(st.integers(1, 20)), device or MS
        cpu = [None if (share := draw(shares)) is None else share * length // WHOLE_PPM for length in (start, end)]
        length = start + count * (device + host) + end
        one = TraceJob(str(number), draw(st.integers(0, 40)) * 100 * MS, length, 1, count, device, host, end_us=end)
        cores = draw(st.sampled_from([0, 0, 1, 3])) * WHOLE_PPM
        made.append(replace(one, startup_cpu_us=cpu[0], end_cpu_us=cpu[1], cores_ppm=cores))
    return made


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The work that cores do, in millionths of a core and millionths of its speed, for a time in microseconds."""
    done = [0]

    class Watched(modelled_host.ModelledHost):
        since = 0

        def _adapt(self, more_ppm: int, now: Micros) -> list[Any]:
            done[0] += self._demand_ppm * self._speed_ppm * (now - self.since)
            self.since = now
            return super()._adapt(more_ppm, now)

    with monkeypatch.context() as patched:
        patched.setattr(modelled_host, "ModelledHost", Watched)
        yield done


def work(jobs: Sequence[TraceJob]) -> int:
    """What the cores have to do for these jobs."""
    total = 0
    for one in jobs:
        device, host = one.cycle_us
        parts = [(one.startup_us, one.startup_cores_ppm), (one.end_us, one.end_cores_ppm)]
        parts.append(((one.iterations or 0) * (device + host), one.iteration_cores_ppm))
        total += sum(length * demand for length, demand in parts) * WHOLE_PPM
    return total


@settings(max_examples=examples(150, fewer=30), deadline=None)
@given(lone_jobs(), curves)
def test_work_done_is_the_speed_of_all_time(jobs: list[TraceJob], cores: Cores) -> None:
    """Of jobs that do all their work on the cores: none is done twice, and none is left."""
    jobs = [replace(one, cores_ppm=one.cores_ppm or WHOLE_PPM) for one in jobs]
    with watched(pytest.MonkeyPatch()) as done:
        result = run(*jobs, cores=cores)
    changes = 8 * len(jobs)  # each is rounded up to a microsecond, and speeds to millionths
    loss = sum(one.duration_us for one in jobs) * 4 * WHOLE_PPM * len(jobs) + changes * len(jobs) * 4 * WHOLE_PPM**2
    assert abs(done[0] - work(jobs)) <= loss
    assert len(ends(result)) == len(jobs)


@settings(max_examples=examples(150, fewer=30), deadline=None)
@given(lone_jobs(), curves)
def test_no_job_is_faster_than_alone_or_slower_than_all_at_once(jobs: list[TraceJob], cores: Cores) -> None:
    most = sum(max(one.startup_cores_ppm, one.end_cores_ppm, one.iteration_cores_ppm, WHOLE_PPM) for one in jobs)
    slowest = cores.speed_ppm(most)
    for one in run(*jobs, cores=cores).jobs:
        alone = one.job.duration_us
        assert alone <= one.jct_us <= -(-alone * WHOLE_PPM // slowest) + 10 * len(jobs) + alone // 100_000


@settings(max_examples=examples(100, fewer=30), deadline=None)
@given(lone_jobs(), curves)
def test_as_a_reference_in_exact_numbers_says(jobs: list[TraceJob], cores: Cores) -> None:
    for one, exact in zip(run(*jobs, cores=cores).jobs, reference(jobs, cores), strict=True):
        assert abs(one.ended_us - exact) <= 20 * len(jobs) + exact // 50_000, one.job


def reference(jobs: Sequence[TraceJob], cores: Cores) -> list[int]:
    """When each job ends: all parts of all jobs, from one change of their speeds to the next, as fractions."""
    parts = [list(parts_of(one)) for one in jobs]
    now, ended = Fraction(0), [0] * len(jobs)
    while any(parts):
        running = [number for number, one in enumerate(jobs) if parts[number] and one.submit_us <= now]
        demand = sum(parts[number][0][1] for number in running)
        speed = {number: parts[number][0][2](Fraction(cores.speed_ppm(demand), WHOLE_PPM)) for number in running}
        times = [parts[number][0][0] / speed[number] for number in running]
        times += [one.submit_us - now for one in jobs if one.submit_us > now]
        step = min(times)
        now += step
        for number in running:
            parts[number][0][0] -= step * speed[number]
            if parts[number][0][0] <= 0:
                del parts[number][0]
                ended[number] = int(now)
    return ended


def parts_of(one: TraceJob) -> Iterator[list[Any]]:
    """Length, demand, and the pace at a speed of the cores, of each part of a job."""
    device, host = one.cycle_us
    on_cores = bool(one.cores_ppm)
    if one.startup_us:
        yield [Fraction(one.startup_us), one.startup_cores_ppm, lambda s: s if one.startup_cores_ppm else Fraction(1)]
    iterations = (one.iterations or 0) * (device + host)
    yield [
        Fraction(iterations),
        one.iteration_cores_ppm,
        lambda s: Fraction(device + host) / (Fraction(device) / (s if on_cores else 1) + Fraction(host) / s),
    ]
    if one.end_us:
        yield [Fraction(one.end_us), one.end_cores_ppm, lambda s: s if one.end_cores_ppm else Fraction(1)]


@pytest.mark.slow
@settings(max_examples=examples(100, fewer=12), deadline=None)
@given(traces(), worlds())
def test_with_as_many_cores_as_jobs_all_is_as_without_a_machine(jobs: list[TraceJob], options: Options) -> None:
    plain, hosted = simulate(jobs, options), simulate(jobs, replace(options, cores=MANY))
    assert (plain.jobs, plain.busy_us, plain.events) == (hosted.jobs, hosted.busy_us, hosted.events)


@pytest.mark.slow
@settings(max_examples=examples(60, fewer=10), deadline=None)
@given(traces(), worlds(), curves)
def test_two_runs_are_the_same(jobs: list[TraceJob], options: Options, cores: Cores) -> None:
    first, second = (simulate(jobs, replace(options, cores=cores)) for _ in range(2))
    assert (first.jobs, first.events) == (second.jobs, second.events)
    assert all(one.jct_us >= one.job.duration_us for one in first.jobs)


def test_a_part_that_is_left_early_knows_its_rest() -> None:
    phase = HostPhase(10, 100, lambda: None)
    assert (phase.end(), phase.left_us(104)) == (110, 6)
    assert phase.set_speed(104, 600_000) and not phase.set_speed(105, 600_000)
    assert (phase.end(), phase.left_us(106)) == (114, 5)  # 4.8 are left


@pytest.mark.parametrize("model", [Concurrent(50_000), Timeslice()], ids=["concurrent", "timeslice"])
def test_jobs_on_gpus_slow_each_other_there_as_ever(model: Concurrent | Timeslice) -> None:
    """Two lanes of one device, beside a machine whose cores they do not need."""
    jobs = [job(name, device=2) for name in "ab"]
    more: dict[str, Any] = {"devices": 1, "settings": Settings(policy="pack"), "interference": model}
    assert run(*jobs, **more).jobs == run(*jobs, cores=None, **more).jobs
