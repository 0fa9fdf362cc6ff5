"""Random traces, and made-up jobs, from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from carpool.core.model import MIB, Allocation, JobPhase, Memory, Oversubscribe, Settings, Usage
from carpool.core.policies.view import DeviceView, JobView, View
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob

DEVICE_MIB = 1000
MOST_DEVICES = 4
JOBS = 14


@dataclass(frozen=True)
class Case:
    """One trace, and the options to run it with."""

    jobs: Sequence[TraceJob]
    base: Options

    def options(self, policy: str) -> Options:
        """Return the options of this case with ``policy`` as the policy."""
        return replace(self.base, settings=replace(self.base.settings, policy=policy))


def whole_case(draw: random.Random, extra: dict[str, int]) -> Case:
    """Make a case on whole devices: gangs, simultaneous arrivals, failing jobs, known and unknown lengths."""
    devices = draw.randint(1, MOST_DEVICES)
    jobs = [_whole_job(draw, number, devices) for number in range(JOBS)]
    return Case(jobs, _options(draw, Allocation.DEVICES, extra, devices))


def _whole_job(draw: random.Random, number: int, devices: int) -> TraceJob:
    return TraceJob(
        id=f"job{number}",
        submit_us=draw.randrange(8) * 200_000,
        duration_us=draw.choice((1, draw.randint(1, 2_000_000), 1_000_000)),
        gpus=draw.randint(1, devices),
        weight=draw.choice((1, 100, 100, 1000)),
        fails_at_ppm=draw.choice((None, None, None, 500_000)),
    )


def lane_case(draw: random.Random, extra: dict[str, int]) -> Case:
    """Make a case in lanes: jobs of several owners, short of memory, that alternate between device and host."""
    jobs = [_lane_job(draw, number) for number in range(JOBS)]
    options = _options(draw, Allocation.LANES, extra, draw.randint(1, 2))
    store = draw.choice((None, None, 3 * DEVICE_MIB * MIB))
    quantum = draw.choice((options.settings.quantum_us, options.settings.quantum_us, None))
    rate = draw.choice((0, 1000, 6000))
    return Case(
        jobs,
        replace(
            options,
            settings=replace(options.settings, host_store=store, quantum_us=quantum),
            oversubscribe=draw.choice((Oversubscribe.AUTO, Oversubscribe.AUTO, Oversubscribe.ON, Oversubscribe.OFF)),
            offload_bytes_per_us=rate,
            restore_bytes_per_us=rate,
        ),
    )


def _lane_job(draw: random.Random, number: int) -> TraceJob:
    iterations, iteration_us = draw.randint(1, 20), draw.randint(1, 60_000)
    host_us = draw.choice((0, 0, draw.randint(1, 60_000)))
    return TraceJob(
        id=f"job{number}",
        submit_us=draw.randrange(6) * 300_000,
        duration_us=iterations * (iteration_us + host_us) + draw.choice((0, 100_000)),
        iterations=iterations,
        iteration_us=iteration_us,
        host_us=host_us,
        persistent=draw.randint(1, DEVICE_MIB // 2) * MIB,
        ephemeral=draw.randint(1, DEVICE_MIB // 2) * MIB,
        utilization_ppm=draw.randint(1, WHOLE_PPM),
        weight=draw.choice((1, 100, 100, 1000)),
        owner=draw.choice((0, 0, 0, 1)),
    )


def _options(draw: random.Random, allocation: Allocation, extra: dict[str, int], devices: int) -> Options:
    settings = Settings(
        allocation=allocation,
        quantum_us=draw.choice((20_000, 50_000, 200_000)),
        backfill=draw.choice((None, None, 0, 1)),
        extra=extra,
    )
    return Options(
        devices=devices,
        settings=settings,
        device_memory=DEVICE_MIB * MIB,
        switch_cost_us=draw.choice((0, 500)),
        retries=1,
        declare_duration=draw.random() < 0.7,
        declare_memory=draw.random() < 0.7,
        record=True,
    )


def made_up_view(draw: random.Random, settings: Settings) -> View:
    """Make a view of twenty jobs in all kinds of states on one device."""
    now = draw.randint(10**9, 10**10)
    jobs = {number: _made_up_job(draw, number, now) for number in range(1, 21)}
    capacity, quantum = DEVICE_MIB * MIB, draw.choice((0, 1, 50_000, 30_000_000))
    out = tuple(number for number, job in jobs.items() if job.offloaded)
    figures = (capacity, draw.randint(0, capacity), 0)
    mode = draw.choice(tuple(Oversubscribe))
    device = DeviceView("gpu0", *figures, (), tuple(jobs), None, None, None, mode, out, quantum)
    quanta = {None: draw.choice((0, quantum)), device.id: quantum}
    return View(now, settings, jobs, {}, {device.id: device}, quanta, policy=settings.policy)


def _made_up_job(draw: random.Random, number: int, now: int) -> JobView:
    def size() -> int:
        return draw.choice((0, 1, draw.randint(1, DEVICE_MIB) * MIB))

    def time() -> int:
        return draw.choice((0, 1, draw.randint(1, now)))

    memory = Memory(size(), size())
    waits = draw.random() < 0.5
    phase = draw.choice((JobPhase.QUEUED, JobPhase.STARTING, JobPhase.RUNNING))
    return JobView(
        id=number,
        name=draw.choice(("", "train", "a job: näme")),
        owner=draw.choice((0, 1000)),
        weight=draw.choice((1, 99, 100, 10_000)),
        arrival=number - 1,
        phase=phase,
        outcome=None,
        device=None if phase is JobPhase.QUEUED else "gpu0",
        lane=None if phase is JobPhase.QUEUED else 1,
        gang=draw.choice((1, 1, 2, 64)),
        devices=(),
        granted=memory,
        reserved=memory,
        waiting_memory=False,
        requested=None,
        attached=phase is JobPhase.RUNNING,
        offloaded=phase is JobPhase.RUNNING and draw.random() < 0.3,
        reload_us=time(),
        idle_since_us=time(),
        measured=draw.random() < 0.5,
        holder=False,
        waiting=waits,
        waiting_since_us=time() if waits else None,
        urgent=draw.random() < 0.1,
        usage=Usage(iterations=draw.randint(0, 1000), device_us=time()),
        attained_us=time(),
        iteration_us=draw.choice((None, 0, draw.randint(1, 10**7))),
        iterations_total=draw.choice((None, 0, draw.randint(1, 10**6))),
        remaining_us=draw.choice((None, 0, time())),
        virtual_us=time(),
        submitted_us=time(),
        started_us=None if phase is JobPhase.QUEUED else time(),
        reason=None,
    )
