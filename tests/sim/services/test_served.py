"""Services worked out by hand, in milliseconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carpool.core.commands import DropWeights, PlaceWeights
from carpool.core.model import GIB, MIB, Allocation, Oversubscribe, Serving, Settings
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options
from carpool.sim.model.served_models import Services, poisson_us
from carpool.sim.model.trace_job import TraceJob
from tests.sim.made_results import recording
from tests.sim.services.serving import ALL, FIRST, MS, SIZE, Story, books, latencies, model, of_services, serve

TWO_WORKERS = Services((), workers=2)


def test_the_first_request_waits_for_the_first_group_and_others_for_nothing() -> None:
    result = serve(model(at=[0, 100, 200]))
    assert latencies(result) == [[30 + FIRST / MS, 30, 30]]
    (one,) = books(result)
    assert (one.copies, one.copied_bytes, one.batches, one.missed) == (1, SIZE, 3, 0)
    services = of_services(result)
    assert (services.turns_us, services.stalled_us, services.ended_us) == (90 * MS + FIRST, FIRST, 230 * MS)


def test_where_copying_takes_longer_only_the_last_group_computes_after_it() -> None:
    assert latencies(serve(model(compute=3))) == [[(ALL + 200) / MS]]


def test_the_next_weights_are_copied_while_others_compute() -> None:
    models = model("a"), model("b", at=[1])
    with_standby = serve(*models, services=TWO_WORKERS)
    assert latencies(with_standby) == [[30 + FIRST / MS], [60 + FIRST / MS - 1]]
    without = serve(*models)
    assert latencies(without) == [[30 + FIRST / MS], [60 + 2 * FIRST / MS - 1]]


def test_weights_that_others_need_are_copied_again() -> None:
    """A device for one model."""
    story: Story = []
    result = serve(model("a", at=[0, 200]), model("b", at=[100]), device_memory=SIZE + MIB, story=story)
    assert latencies(result) == [[30 + FIRST / MS, 30 + FIRST / MS], [30 + FIRST / MS]]
    assert [each.copies for each in books(result)] == [2, 1]
    moves = [(type(each).__name__, each.key) for _, each in story if isinstance(each, PlaceWeights | DropWeights)]
    drop, place = "DropWeights", "PlaceWeights"
    assert moves == [(place, "a"), (drop, "a"), (place, "b"), (drop, "b"), (place, "a"), (drop, "a")]


def test_requests_that_wait_together_are_a_batch() -> None:
    """Of four that come while another computes, three fit into a batch: 30 + 2 x 5 ms.  A batch may be waited for."""
    result = serve(model(size=0, at=[0, 1, 2, 3, 4], max_batch=3, further_us=5 * MS))
    assert latencies(result) == [[30, 69, 68, 67, 96]]
    assert books(result)[0].batches == 3
    assert latencies(serve(model(size=0, at=[0, 10], max_batch=3, max_delay_us=20 * MS))) == [[80, 70]]


def test_deadlines() -> None:
    """Two are answered in time; the third could not be when the device is free, the fourth never."""
    models = model("a", size=0, at=[0, 25, 28]), model("b", size=0, at=[100], deadline_us=20 * MS)
    result = serve(replace(models[0], deadline_us=55 * MS), models[1])
    first, second = books(result)
    assert (first.latencies_us, first.late, first.given_up) == ([30 * MS, 35 * MS], 0, 1)
    assert (second.latencies_us, second.late, second.given_up) == ([], 0, 1)
    (in_time,) = books(serve(model(size=0, deadline_us=30 * MS)))
    assert (in_time.latencies_us, in_time.late) == ([30 * MS], 0)
    cold = serve(model(deadline_us=30 * MS))
    assert (books(cold)[0].late, books(cold)[0].missed) == (1, 1), "the queue does not know what copying takes"


def test_a_full_queue() -> None:
    result = serve(model(size=0, at=[0, 1, 2, 3], max_queue=2))
    (one,) = books(result)
    assert (len(one.latencies_us), one.refused) == (3, 1)


@pytest.mark.parametrize(
    ("serving", "order"), [(Serving.FCFS, "xabc"), (Serving.EDF, "xcab"), (Serving.PRIORITY, "xbca")]
)
def test_who_is_first(serving: Serving, order: str) -> None:
    models = [
        model("x", size=0),
        model("a", size=0, at=[1], deadline_us=500 * MS),
        model("b", size=0, at=[2], priority=1),
        model("c", size=0, at=[3], deadline_us=300 * MS, priority=2),
    ]
    result = serve(*models, settings=Settings(serving=serving))
    ends = {each.model.name: each.model.arrivals_us[0] + each.latencies_us[0] for each in books(result)}
    assert "".join(sorted(ends, key=ends.__getitem__)) == order


def test_a_request_goes_where_the_weights_are() -> None:
    """Two devices: at first each has one model; later both workers are idle."""
    result = serve(model("a", at=[0, 200]), model("b", at=[0, 100]), devices=2)
    assert [each.copies for each in books(result)] == [1, 1]
    assert latencies(result) == [[30 + FIRST / MS, 30], [30 + FIRST / MS, 30]]


def test_activations_lie_in_the_lane() -> None:
    services = Services((), 2, activations=100 * MIB)
    result = serve(model(), services=services, record=True)
    (memory,) = recording(result).memory
    assert SIZE + 100 * MIB <= max(memory.values) < SIZE + 200 * MIB, "both are in one lane"
    assert memory.values[-1] == 0
    unknown = serve(model(at=range(0, 400, 10)), services=services, declare_memory=False)
    assert len(books(unknown)[0].latencies_us) == 40, "it is asked for"


def test_without_memory_requests_fail() -> None:
    """A job has it all and keeps it; nobody waits for memory where growth is refused."""
    job = TraceJob("t", 0, 1000 * MS, iterations=10, iteration_us=100 * MS, persistent=GIB)
    options = {"device_memory": GIB + 100 * MIB, "oversubscribe": Oversubscribe.OFF, "declare_memory": False}
    settings = Settings(refuse_growth=1)
    services = Services((), 1, activations=200 * MIB)
    result = serve(model(size=MIB, at=[500]), jobs=[job], settings=settings, services=services, **options)
    (one,) = books(result)
    assert (one.failed, one.latencies_us) == (1, [])
    assert result.jobs[0].ended_us == 1000 * MS


def test_when_the_last_request_is_settled_the_workers_leave() -> None:
    """Until then a job that needs the whole device waits."""
    job = TraceJob("t", 0, 100 * MS, persistent=GIB)
    result = serve(model(at=[0, 20]), jobs=[job], device_memory=GIB, oversubscribe=Oversubscribe.OFF)
    assert of_services(result).ended_us == 60 * MS + FIRST
    assert result.jobs[0].ended_us >= 100 * MS


def test_no_requests_at_all() -> None:
    result = serve(model(at=[]), jobs=[TraceJob("t", 0, 100 * MS)])
    assert (result.jobs[0].ended_us, books(result)[0].settled) == (100 * MS, 0)


def test_a_simulation_can_be_repeated() -> None:
    """The same events and commands, one by one; another seed gives other arrivals."""
    models = [replace(model(str(seed)), arrivals_us=poisson_us(20, 1_000_000, seed)) for seed in range(3)]
    jobs = [TraceJob("t", 0, 1_000_000, iterations=20, iteration_us=50_000, persistent=GIB)]
    stories: list[Story] = [[], []]
    for story in stories:
        serve(*models, jobs=jobs, device_memory=GIB + 2 * SIZE, story=story)
    assert stories[0] == stories[1]
    assert poisson_us(20, 1_000_000, 1) != poisson_us(20, 1_000_000, 2)


def test_poisson_arrivals_are_as_many_as_was_said() -> None:
    times = poisson_us(50, 1_000_000_000, 7)
    assert 48_500 < len(times) < 51_500  # 7 standard deviations
    assert list(times) == sorted(times)
    assert times[0] > 0
    assert times[-1] < 1_000_000_000


@pytest.mark.parametrize(
    ("services", "options", "message"),
    [
        (Services(()), {}, "at least one model"),
        (Services((model(),), 0), {}, "at least one worker"),
        (Services((model(), model())), {}, "two models have one name"),
        (Services((model(size=2 * GIB),)), {"device_memory": GIB}, "model m needs 2147483648 bytes"),
        (Services((model(),)), {"settings": Settings(policy="fifo", allocation=Allocation.DEVICES)}, "lanes"),
    ],
)
def test_what_makes_no_sense(services: Services, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate([], replace(Options(services=services), **options))
