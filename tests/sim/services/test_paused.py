"""Jobs beside services, worked out by hand in milliseconds: they pause, and go on exactly where they were."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carpool.core.commands import GrantTurn, PauseTurn
from carpool.core.events import Event, MemoryRequested, Sampled, TurnPaused
from carpool.core.model import GIB, MIB, Oversubscribe, Settings
from carpool.sim.driver import Simulation
from carpool.sim.model.cores import parse_cores
from carpool.sim.model.options import Options
from carpool.sim.model.served_models import ServedModel
from carpool.sim.model.trace_job import TraceJob
from tests.sim.services.serving import MS, Story, books, latencies, model, of_services, serve

JOB = TraceJob("t", 0, 1000 * MS, iterations=20, iteration_us=50 * MS)


def request(at: float, **more: int) -> ServedModel:
    """5 ms, weights of no size."""
    return model(size=0, compute=5, at=[at], **more)


@pytest.mark.parametrize(
    ("at", "deadline", "latency", "forced"),
    [
        (40, None, 15, False),  # at 50 an iteration ends
        (10, None, 25, True),  # service_patience_us: 20 ms
        (140, 12, 12, True),  # at 147 it has to begin
        (140, 16, 15, False),
        (1, None, 25, True),
    ],
)
def test_at_a_boundary_or_at_once(at: float, deadline: int | None, latency: float, forced: bool) -> None:
    story: Story = []
    more = {} if deadline is None else {"deadline_us": deadline * MS}
    result = serve(request(at, **more), jobs=[JOB], story=story)
    assert latencies(result) == [[latency]]
    (job,) = result.jobs
    assert (job.ended_us, job.service_us, job.waiting_us) == (1005 * MS, 1000 * MS, 5 * MS)
    assert (job.pauses, job.preemptions) == (1, 0)
    assert [each.forced for _, each in story if isinstance(each, PauseTurn)][-1] == forced


def test_it_goes_on_in_the_middle_of_an_iteration() -> None:
    """Paused at 30 for 5 ms, so the boundary at which the next request begins is at 55."""
    result = serve(model(size=0, compute=5, at=[10, 45]), jobs=[JOB])
    assert latencies(result) == [[25, 15]]


def test_after_a_boundary_it_gets_on_before_it_pauses_at_one_again() -> None:
    """The second request comes at the very moment at which the job goes on, at the boundary.

    In between is one that is given up when it comes.
    """
    models = model(size=0, compute=5, at=[10, 55]), model("b", size=0, at=[51], deadline_us=1)
    result = serve(*models, jobs=[JOB], settings=Settings(service_patience_us=10**7))
    assert latencies(result) == [[45, 55], []]


def test_requests_that_wait_are_served_in_a_row() -> None:
    times = range(10, 110)
    result = serve(model(size=0, compute=1, at=times), jobs=[JOB], settings=Settings(service_patience_us=10**7))
    (job,) = result.jobs
    assert (job.ended_us, job.pauses) == (1100 * MS, 1), "all of it is computed, and nothing twice"


@pytest.mark.parametrize(
    ("iterations", "compute_ms", "latency", "ended_ms"),
    [
        (5, 5, 25, 750),  # off the device for the grace of 20 ms at 80; nothing is lost
        (5, 100, 120, 780),  # the host's part ends at 150; the device is free again at 180: 30 ms are lost
        (1, 300, 320, 150),  # the last time on the host ends a job that is paused
    ],
)
def test_what_it_has_to_do_on_the_host_it_does_meanwhile(
    iterations: int, compute_ms: int, latency: int, ended_ms: int
) -> None:
    """50 ms on the device, 100 on the host."""
    job = replace(JOB, duration_us=iterations * 150 * MS, iterations=iterations, host_us=100 * MS)
    served = model(size=0, compute=compute_ms, at=[60])
    result = serve(served, jobs=[job], settings=Settings(service_patience_us=10**7))
    assert latencies(result) == [[latency]]
    assert result.jobs[0].ended_us == ended_ms * MS
    assert ended_ms != 750 or result.jobs[0].service_us == 745 * MS


def test_what_it_does_on_the_host_meanwhile_is_slowed_by_others_there() -> None:
    """On one core: from 80 to 84 another starts, so of the 5 ms until the job resumes 2 are lost."""
    job = replace(JOB, duration_us=750 * MS, iterations=5, host_us=100 * MS)
    starts = TraceJob("s", 80 * MS, 4 * MS, iterations=1, iteration_us=1, fails_at_ppm=500_000)
    patient = Settings(service_patience_us=10**7)
    result = serve(model(size=0, compute=5, at=[60]), jobs=[job, starts], settings=patient, cores=parse_cores("1"))
    assert [one.ended_us for one in result.jobs] == [752 * MS, 84 * MS]


def test_all_lanes_pause() -> None:
    story: Story = []
    jobs = [JOB, replace(JOB, id="u", iterations=25, iteration_us=40 * MS, utilization_ppm=500_000)]
    jobs[0] = replace(jobs[0], utilization_ppm=500_000)
    result = serve(request(30), jobs=jobs, settings=Settings(policy="pack"), story=story)
    assert latencies(result) == [[25]], "one comes to its boundary after 10 ms, the other is paused after 20"
    assert [now for now, each in story if isinstance(each, TurnPaused)] == [40 * MS, 50 * MS]
    assert [job.ended_us for job in result.jobs] == [1005 * MS, 1015 * MS]


def test_between_turns_of_a_lane_nobody_is_paused() -> None:
    """Two jobs in one lane; whoever has the turn pauses, and the lane stays its own."""
    jobs = [replace(JOB, persistent=GIB), replace(JOB, id="u", persistent=GIB)]
    times = range(10, 1900, 30)
    result = serve(model(size=0, compute=5, at=times), jobs=jobs, settings=Settings(quantum_us=100 * MS))
    assert sum(job.service_us for job in result.jobs) == 2000 * MS
    assert max(job.ended_us for job in result.jobs) == 2000 * MS + 5 * MS * len(times)
    assert len(books(result)[0].latencies_us) == len(times)


def test_what_services_left_is_used() -> None:
    times = range(0, 1000, 10)
    result = serve(model(size=0, compute=5, at=times, deadline_us=20 * MS), jobs=[JOB])
    assert result.left_us == result.occupied_us == 1000 * MS
    assert of_services(result).turns_us == 500 * MS
    with_weights = serve(model(compute=3), jobs=[JOB])
    stalled_us = of_services(with_weights).stalled_us
    assert with_weights.left_us - with_weights.occupied_us == stalled_us > 0, "jobs could have had that time"


def test_a_job_that_is_paused_while_it_comes_back_comes_back_all_the_same() -> None:
    """Two jobs, one of which fits beside the service: 600 MiB take 105 ms each way."""
    jobs = [replace(JOB, id=name, persistent=600 * MIB) for name in "ab"]
    times = range(5, 3000, 40)
    result = serve(
        model(size=0, compute=5, at=times, deadline_us=10 * MS),
        jobs=jobs,
        settings=Settings(policy="tq", quantum_us=300 * MS, max_move_share_ppm=1_000_000),
        device_memory=1000 * MIB,
    )
    assert sum(job.offloads for job in result.jobs) > 2
    assert all(job.moved_bytes == 2 * job.offloads * 600 * MIB for job in result.jobs)
    assert books(result)[0].missed == 0


def test_a_job_that_waits_for_memory_asks_once() -> None:
    """The second cannot have its memory before the first has ended; meanwhile services compute."""
    first = replace(JOB, persistent=600 * MIB)
    second = replace(JOB, id="u", ephemeral=500 * MIB)
    story: Story = []
    options = {"device_memory": 1000 * MIB, "oversubscribe": Oversubscribe.OFF, "declare_memory": False}
    served = model(size=0, compute=5, at=range(10, 900, 50))
    result = serve(served, jobs=[first, second], settings=Settings(policy="pack"), story=story, **options)
    assert [job.ended_us > 1000 * MS for job in result.jobs] == [True, True]
    asked = [now for now, each in story if isinstance(each, MemoryRequested) and each.total == second.ephemeral]
    assert len(asked) == 1


def test_a_service_that_keeps_others_too_long_computes_the_rest_later() -> None:
    """After 20 ms it is asked for its turn, after 20 more it loses it.  What it has computed counts."""
    settings = Settings(forced_after_us=20 * MS)
    story: Story = []
    result = serve(model(size=0, compute=100, at=[50.001]), jobs=[JOB], settings=settings, story=story)
    assert of_services(result).turns_us == 100 * MS
    assert sum(isinstance(each, GrantTurn) and each.job == 2 for _, each in story) == 3
    assert result.jobs[0].ended_us == 1100 * MS


class PausedWhenMeasured(Simulation):
    """The core's answer to a job's first figures is a pause of 2 s."""

    def _handle(self, event: Event) -> None:
        if isinstance(event, TurnPaused):
            return
        super()._handle(event)
        if isinstance(event, Sampled):
            self._scene.execute(PauseTurn(event.job, forced=True))
            self._scene.plan(self._scene.now + 2000 * MS, self._scene.execute, GrantTurn(1, event.job))


def test_a_pause_may_be_the_answer_to_what_was_measured() -> None:
    """Until it goes on, a job comes to nothing of what it would have come to."""
    simulation = PausedWhenMeasured([JOB], Options(declare_memory=False))
    simulation.run()
    (job,) = simulation.result(1.0).jobs
    assert (job.ended_us, job.pauses) == (3000 * MS, 1)
