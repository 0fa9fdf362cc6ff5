"""Random services and engines beside jobs: the core never contradicts itself; nothing is lost, or computed at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carpool.core import commands, events
from carpool.core.model import MIB, Outcome, Oversubscribe, Serving, Settings
from carpool.sim.model.cores import parse_cores
from carpool.sim.model.served_engines import EngineRequest, EngineResult, ServedEngine
from carpool.sim.model.served_models import ServedModel, Services
from carpool.sim.model.trace_job import TraceJob
from tests.examples import examples
from tests.sim.services.serving import MS, FiniteStory, books, model, of_services, serve

CAPACITY = 1000 * MIB
LENGTH = 2_000 * MS
megabytes = st.sampled_from([0, 1, 60, 150, 300, 420]).map(lambda number: number * MIB)
times = st.lists(st.integers(0, LENGTH), max_size=12).map(lambda found: tuple(sorted(found)))
models = st.builds(
    ServedModel,
    name=st.just(""),
    weights=megabytes,
    compute_us=st.sampled_from([1, 900, 5_000, 40_000]),
    arrivals_us=times,
    further_us=st.sampled_from([None, 0, 700]),
    deadline_us=st.sampled_from([None, None, 3_000, 60_000, 400_000]),
    max_batch=st.sampled_from([1, 1, 4]),
    max_delay_us=st.sampled_from([0, 0, 7_000]),
    max_queue=st.sampled_from([1, 100]),
    priority=st.integers(0, 2),
)
asked = st.builds(
    EngineRequest, st.integers(0, LENGTH), st.sampled_from([1, 9_000, 60_000]), st.sampled_from([0, 1, 9])
)
engines = st.builds(
    ServedEngine,
    name=st.sampled_from("ab"),
    requests=st.lists(asked, max_size=8).map(lambda found: tuple(sorted(found))),
    weights=megabytes,
    cache=megabytes,
    token_us=st.sampled_from([0, 700, 9_000]),
    further_us=st.sampled_from([0, 300]),
    most=st.sampled_from([1, 3, 64]),
    start_us=st.sampled_from([0, 50_000]),
    begin_us=st.sampled_from([None, 0, 300_000]),
    end_us=st.sampled_from([0, 0, 900_000]),
    ttl_us=st.sampled_from([None, 1, 200_000]),
    owner=st.sampled_from([0, 7]),
)
served = st.builds(
    lambda found, **more: Services(tuple(replace(each, name=f"m{n}") for n, each in enumerate(found)), **more),
    st.lists(models, max_size=4),
    engines=st.lists(engines, min_size=1, max_size=3).map(tuple),
    workers=st.integers(1, 3),
    activations=st.sampled_from([0, 8, 100]).map(lambda number: number * MIB),
    owner=st.sampled_from([0, 7]),
    transfer_us=st.sampled_from([0, 50]),
)

ends = st.sampled_from([0, 1, 90 * MS])


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    jobs = []
    for number in range(draw(st.integers(0, 4))):
        device, host = draw(st.sampled_from([(3, 0), (40, 0), (10, 2), (30, 60), (300, 0)]))
        iterations = draw(st.integers(1, 30))
        at, start, end = draw(st.integers(0, LENGTH)), draw(st.sampled_from([0, 50 * MS])), draw(ends)
        length = start + iterations * (device + host) * MS + end
        memory = (draw(megabytes), draw(megabytes))
        job = TraceJob(str(number), at, length, 1, iterations, device * MS, host * MS, *memory, end_us=end)
        jobs.append(replace(job, owner=draw(st.sampled_from([0, 0, 7])), utilization_ppm=500_000))
    return jobs


options = st.builds(
    dict,
    devices=st.sampled_from([1, 1, 2]),
    device_memory=st.just(CAPACITY),
    oversubscribe=st.sampled_from(Oversubscribe),
    switch_cost_us=st.sampled_from([0, 300]),
    cores=st.sampled_from([None, None, parse_cores("2:1.4")]),
    declare_memory=st.booleans(),
    telemetry_us=st.just(0),
    settings=st.builds(
        Settings,
        policy=st.sampled_from(["fair", "fifo", "pack", "srtf", "tq"]),
        serving=st.sampled_from(list(Serving)),
        quantum_us=st.sampled_from([None, 0, 100_000]),
        service_patience_us=st.sampled_from([0, 20_000, 10_000_000]),
        grace_us=st.sampled_from([1_000, 20_000]),
        refuse_growth=st.sampled_from([0, 0, 0, 1]),
    ),
)


@settings(max_examples=examples(60, fewer=25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(services=served, jobs=traces(), chosen=options)
def test_nothing_is_lost(services: Services, jobs: list[TraceJob], chosen: dict[str, object]) -> None:
    story = FiniteStory()
    result = serve(*services.models, jobs=jobs, services=services, story=story, **chosen)
    for each in books(result):
        assert each.settled == len(each.model.arrivals_us)
        assert all(latency >= each.model.compute_us for latency in each.latencies_us)
        assert each.copied_bytes == each.copies * each.model.weights
    for engine in of_services(result).engines:
        check_engine(engine)
    for job in result.jobs:
        plain = job.out_of_memory == 0
        assert job.outcome is Outcome.SUCCEEDED or not plain or job.job.persistent + job.job.ephemeral > CAPACITY
        assert job.outcome is not Outcome.SUCCEEDED or job.jct_us >= job.job.duration_us
    check_turns(story, set(range(1, len(jobs) + 1)))
    assert 0 <= of_services(result).stalled_us <= of_services(result).turns_us
    assert result.occupied_us <= result.left_us


def test_what_a_service_was_given_for_the_turn_that_follows_is_not_taken_for_another() -> None:
    """Found at random: two workers for two models whose weights do not fit together."""
    weights, plain = 420 * MIB, {"compute": 0.001, "max_queue": 100}
    result = serve(
        *(model("m2", (0, 0, 0), size=weights, **plain), model("m3", (0,), size=weights, **plain)),
        services=Services((), workers=2, activations=100 * MIB, transfer_us=0),
        settings=Settings(policy="pack", serving=Serving.EDF, service_patience_us=0, grace_us=1000),
        device_memory=CAPACITY,
        oversubscribe=Oversubscribe.AUTO,
        switch_cost_us=0,
        declare_memory=False,
    )
    assert [each.settled for each in books(result)] == [3, 1]


def check_engine(found: EngineResult) -> None:
    """Each request is settled once, none is faster than the engine alone."""
    engine = found.engine
    assert found.settled == len(engine.requests)
    least = min((each.prompt_us for each in engine.requests), default=0)
    assert all(time >= least for time in (*found.latencies_us, *found.first_us))
    assert all(time >= engine.token_us for time in found.token_us)
    assert len(found.token_us) <= len(found.first_us) <= len(found.latencies_us)
    assert found.offloads * engine.memory * 2 >= found.moved_bytes


def check_turns(story: Sequence[tuple[int, object]], jobs: set[int]) -> None:
    """While a worker has a turn no job of its device computes, and no other worker."""
    places: dict[int, str] = {}
    computing: dict[int, bool] = {}
    for _, each in story:
        if isinstance(each, commands.StartJob):
            places[each.job] = each.device
        elif isinstance(each, commands.GrantTurn):
            computing[each.job] = True
        elif isinstance(each, events.TurnPassed):
            computing[each.job], computing[each.to] = False, True
        elif isinstance(each, events.TurnPaused | events.TurnReleased | events.ProcessExited | commands.RetryJob):
            computing[each.job] = False
        now = [job for job, does in computing.items() if does]
        for worker in set(now) - jobs:
            beside = [job for job in now if job != worker and places[job] == places[worker]]
            assert not beside, f"{beside} compute beside worker {worker}"
