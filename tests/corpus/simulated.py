"""What the recorder lets the simulator do: whole devices and services, which few machines have to record them on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from carpool.core.model import GIB, MIB, Allocation, Settings
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options, core_settings
from carpool.sim.model.served_models import ServedModel, Services, poisson_us
from carpool.sim.model.trace_job import TraceJob
from tests.corpus.journals import StoredJournal, StoredRow

SECOND = 1_000_000


def record(jobs: Sequence[TraceJob], options: Options, version: str) -> StoredJournal:
    rows: list[StoredRow] = []

    def witness(now_us: int, happened: object) -> None:
        rows.append(StoredRow(len(rows) + 1, now_us, type(happened).__name__, msgspec.json.encode(happened).decode()))

    simulate(jobs, options, witness=witness)
    return StoredJournal(version, msgspec.to_builtins(core_settings(options)), rows)


def gangs(count: int) -> list[TraceJob]:
    draw, jobs, now = random.Random(5), [], 0
    for number in range(count):
        now += draw.choice([0, 1, 10, 60]) * SECOND
        jobs.append(TraceJob(str(number), now, draw.randint(1, 200) * SECOND, draw.choice([1, 1, 2, 4, 8])))
    return jobs


def lane_jobs(count: int) -> list[TraceJob]:
    """Jobs of two owners that need memory, compute, idle on the host, and sometimes fail."""
    draw, jobs, now = random.Random(1), [], 0
    for number in range(count):
        now += draw.choice([0, 0, 100, 1000, 5000]) * 1000
        device_us, host_us = draw.choice([3, 10, 40, 300]) * 1000, draw.choice([0, 0, 2, 25]) * 1000
        iterations = draw.randint(1, 40)
        jobs.append(
            TraceJob(
                *(str(number), now, draw.choice([0, SECOND // 2]) + iterations * (device_us + host_us), 1, iterations),
                *(device_us, host_us, draw.choice([50, 400, 1500]) * MIB, draw.choice([200, 900, 2500]) * MIB),
                weight=draw.choice([100, 100, 300]),
                owner=draw.choice([1, 1, 1, 2]),
                fails_at_ppm=draw.choice([None, None, None, 400_000]),
            )
        )
    return jobs


def served() -> Services:
    models = [
        ServedModel(
            *(str(number), 200 * (1 + number) * MIB, 9000 * (1 + number), poisson_us(4, 8 * SECOND, number)),
            further_us=3000,
            deadline_us=[None, 60_000, 400_000][number % 3],
            max_batch=4,
            max_queue=3,
        )
        for number in range(6)
    ]
    return Services(tuple(models), 2, activations=100 * MIB, owner=1)


def whole_devices(version: str) -> StoredJournal:
    settings = Settings(policy="srsf", allocation=Allocation.DEVICES, quantum_us=20 * SECOND)
    return record(gangs(60), Options(8, settings, switch_cost_us=SECOND // 2), version)


def host_store(version: str) -> StoredJournal:
    """Stores that are kept are given up for others, and jobs wait where that is not enough."""
    settings = Settings(policy="tq", quantum_us=100_000, host_store=2 * GIB, max_move_share_ppm=1_000_000)
    jobs = [replace(job, owner=1) for job in lane_jobs(60)]
    return record(jobs, Options(1, settings, 4 * GIB, retries=1), version)


def unknown_jobs(version: str) -> StoredJournal:
    """Nothing is declared: jobs are measured, and wait for memory."""
    options = Options(2, Settings(policy="las"), 4 * GIB, declare_memory=False, declare_duration=False)
    return record(lane_jobs(80), options, version)


def many_services(version: str) -> StoredJournal:
    options = Options(2, Settings(), 4 * GIB, services=served(), switch_cost_us=2000)
    return record(lane_jobs(20), options, version)


SIMULATED = {
    "simulated-whole-devices": whole_devices,
    "simulated-host-store": host_store,
    "simulated-unknown-jobs": unknown_jobs,
    "simulated-services": many_services,
}
