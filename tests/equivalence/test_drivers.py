"""Two drivers, one core: the daemon's loop and the simulator write the same journal, event for event.

The jobs are scripted (`carpool.sim` models them).  Everything else of the daemon is real: its loop with its timers,
its feed, its SQLite journal with its writer thread.  Only the clock is not: it jumps to whatever comes next.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import GIB, MIB, Allocation, Micros, Oversubscribe, Serving, Settings
from carpool.core.policies import available_policies
from carpool.daemon.journal.events import Feed, encoded
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.writer import Journal
from carpool.daemon.loop import CoreLoop
from carpool.sim.driver import simulate
from carpool.sim.model.options import Options, Timeslice, core_settings
from carpool.sim.model.served_engines import EngineRequest, ServedEngine
from carpool.sim.model.served_models import ServedModel, Services, poisson_us
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.whole_devices.allocator import machine_for
from carpool.sim.world import Scene
from tests.tiers import all_but_first

Entry = tuple[Micros, str, str]  # when, kind, everything in it as JSON


class JumpingTimer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class JumpingClock:
    """Stands still until it is told to jump."""

    def __init__(self) -> None:
        self.now: Micros = 0
        self._timers: list[tuple[Micros, int, Callable[[], None], JumpingTimer]] = []
        self._number = 0

    def now_us(self) -> Micros:
        return self.now

    def call_at(self, when_us: Micros, call: Callable[[], None]) -> JumpingTimer:
        self._number += 1
        timer = JumpingTimer()
        heapq.heappush(self._timers, (when_us, self._number, call, timer))
        return timer

    def next(self) -> Micros | None:
        while self._timers and self._timers[0][3].cancelled:
            heapq.heappop(self._timers)
        return max(self.now, self._timers[0][0]) if self._timers else None

    def fire(self) -> None:
        heapq.heappop(self._timers)[2]()


async def by_the_daemon(jobs: Sequence[TraceJob], options: Options, path: Path) -> list[Entry]:
    """What the daemon's journal holds after its loop has run the jobs."""
    connection = open_journal(path)
    journal = Journal(connection, asyncio.get_running_loop())
    feed, clock = Feed(journal, path, 0), JumpingClock()
    core = CoreLoop(
        machine_for(core_settings(options), records=False),
        feed,
        lambda post: Scene(jobs, options, post),
        lambda _job: None,
        clock,
    )
    scene = core.executor
    scene.begin()
    while scene.ledger.left:
        planned, due = scene.next(), clock.next()
        if due is not None and (planned is None or due < planned):
            clock.now = scene.now = due
            clock.fire()
        else:
            assert planned is not None, "nothing happens any more"
            clock.now = planned
            scene.run(planned)
    core.stop()
    feed.close()
    await journal.flushed()
    rows = connection.execute("SELECT now_us, kind, data FROM events ORDER BY seq").fetchall()
    journal.close()
    return [(now, kind, data) for now, kind, data in rows]


def by_the_simulator(jobs: Sequence[TraceJob], options: Options) -> list[Entry]:
    entries: list[Entry] = []

    def witness(now: Micros, happened: Event | Command) -> None:
        entries.append((now, type(happened).__name__, encoded(happened).decode()))

    simulate(jobs, options, witness=witness)
    return entries


def lane_jobs(seed: int, count: int = 60) -> list[TraceJob]:
    """Jobs of several owners that need memory, compute, idle on the host, and sometimes die."""
    draw = random.Random(seed)
    jobs, now = [], 0
    for number in range(count):
        now += draw.choice([0, 0, 100, 1000, 5000]) * 1000
        device, host = draw.choice([3, 10, 40, 300]) * 1000, draw.choice([0, 0, 2, 25]) * 1000
        iterations = draw.randint(1, 40)
        jobs.append(
            TraceJob(
                *(str(number), now, draw.choice([0, 500_000]) + iterations * (device + host), 1),
                *(iterations, device, host, draw.choice([50, 400, 1500]) * MIB, draw.choice([200, 900, 2500]) * MIB),
                utilization_ppm=draw.choice([200_000, 600_000, 1_000_000]),
                weight=draw.choice([100, 100, 300]),
                owner=draw.choice([1, 1, 1, 2]),
                fails_at_ppm=draw.choice([None, None, None, 400_000]),
            )
        )
    return jobs


def gangs(seed: int, count: int = 80) -> list[TraceJob]:
    draw = random.Random(seed)
    jobs, now = [], 0
    for number in range(count):
        now += draw.choice([0, 1, 10, 60]) * 1_000_000
        jobs.append(TraceJob(str(number), now, draw.randint(1, 200) * 1_000_000, draw.choice([1, 1, 2, 4, 8])))
    return jobs


async def agree(jobs: Sequence[TraceJob], options: Options, tmp_path: Path) -> list[Entry]:
    daemon = await by_the_daemon(jobs, options, tmp_path / "journal.sqlite")
    simulator = by_the_simulator(jobs, options)
    for number, (one, other) in enumerate(zip(daemon, simulator, strict=False)):
        assert one == other, f"entry {number} differs after {daemon[max(0, number - 5) : number]}"
    assert len(daemon) == len(simulator)
    return daemon


@pytest.mark.parametrize("count", all_but_first([30, 60]))
@pytest.mark.parametrize("mode", Oversubscribe)
@pytest.mark.parametrize("policy", available_policies())
async def test_lanes(policy: str, mode: Oversubscribe, count: int, tmp_path: Path) -> None:
    """On devices that hold one or two of the jobs: who does not fit waits, or others leave."""
    extra = {"las_limit_1_us": 200_000} if policy == "las" else {}
    settings = Settings(policy=policy, max_lanes=2 if policy == "pack" else None, extra=extra)
    if policy == "tq":
        settings = replace(settings, quantum_us=500_000)
    options = Options(2, settings, 4 * GIB, retries=1, switch_cost_us=2000, oversubscribe=mode)
    entries = await agree(lane_jobs(1, count), options, tmp_path)
    kinds = {kind for _, kind, _ in entries}
    assert {"TurnPassed", "GrantMemory", "OpenLane", "CloseLane"} <= kinds
    if mode is Oversubscribe.OFF:
        assert ("RequestYield" in kinds) == (policy != "sjf"), "it takes nothing away"
    else:
        assert {"WatchIdle", "Offload", "Offloaded"} <= kinds


async def test_a_small_host_store(tmp_path: Path) -> None:
    """Stores that are kept are given up for others, and jobs wait where that is not enough."""
    settings = Settings(policy="tq", quantum_us=100_000, host_store=2 * GIB, max_move_share_ppm=1_000_000)
    entries = await agree([replace(job, owner=1) for job in lane_jobs(3)], Options(1, settings, 4 * GIB), tmp_path)
    assert {"Offload", "DropStore"} <= {kind for _, kind, _ in entries}


@pytest.mark.parametrize("seed", range(3))
async def test_jobs_that_are_measured(seed: int, tmp_path: Path) -> None:
    """Nothing is declared: jobs grow one at a time, wait for memory, and some are moved out and come back."""
    options = Options(1, Settings(), 4 * GIB, Timeslice(), declare_memory=False, declare_duration=False)
    jobs = [replace(job, owner=1) for job in lane_jobs(seed, 40)]
    kinds = {kind for _, kind, _ in await agree(jobs, options, tmp_path)}
    assert {"Sampled", "MemoryRequested"} <= kinds


def served(seed: int, seconds: int) -> Services:
    """More models than fit on a device beside jobs; some requests come too late, some wait in vain."""
    models = [
        ServedModel(
            *(
                str(number),
                200 * (1 + number) * MIB,
                9000 * (1 + number),
                poisson_us(4, seconds * 1_000_000, 10 * seed + number),
            ),
            further_us=3000,
            deadline_us=[None, 60_000, 400_000][number % 3],
            max_batch=4,
            max_queue=3,
        )
        for number in range(6)
    ]
    return Services(tuple(models), 2, activations=100 * MIB, owner=1)


@pytest.mark.parametrize("seconds", all_but_first([7, 20]))
@pytest.mark.parametrize("serving", Serving)
@pytest.mark.parametrize("policy", ["fair", "pack"])
async def test_services(policy: str, serving: Serving, seconds: int, tmp_path: Path) -> None:
    """Beside jobs, which pause; weights come and go."""
    settings = Settings(policy=policy, serving=serving)
    options = Options(2, settings, 4 * GIB, services=served(serving, seconds), switch_cost_us=2000)
    kinds = {kind for _, kind, _ in await agree(lane_jobs(4, 30), options, tmp_path)}
    assert {"PlaceWeights", "DropWeights", "PauseTurn", "TurnPaused", "Offload", "Offloaded"} <= kinds


def engines(seed: int) -> tuple[ServedEngine, ...]:
    """Of which two fit together at most; requests come in bursts, and each engine starts and ends several times."""
    draw = random.Random(seed)
    times = [sorted(draw.randrange(8_000_000) for _ in range(20)) for _ in range(3)]
    return tuple(
        ServedEngine(
            str(number),
            tuple(EngineRequest(at, draw.randrange(1, 200_000), draw.randrange(1, 30)) for at in each),
            *(600 * MIB, 900 * MIB, 6000, 1000),
            start_us=100_000,
            ttl_us=700_000,
            owner=1,
        )
        for number, each in enumerate(times)
    )


@pytest.mark.parametrize("policy", ["fair", "tq"])
async def test_engines(policy: str, tmp_path: Path) -> None:
    """Beside jobs and models, whose memory leaves for theirs."""
    services = replace(served(1, 7), engines=engines(1))
    options = Options(1, Settings(policy=policy), 4 * GIB, services=services, switch_cost_us=2000)
    kinds = {kind for _, kind, _ in await agree(lane_jobs(4, 20), options, tmp_path)}
    assert {"ServiceBusy", "WatchIdle", "Offload", "Offloaded", "RequestYield"} <= kinds


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srtf", "srsf", "las", "fair"])
async def test_whole_devices(policy: str, tmp_path: Path) -> None:
    extra = {"las_limit_1_us": 30_000_000, "las_by_devices": 1} if policy == "las" else {}
    settings = Settings(policy=policy, allocation=Allocation.DEVICES, extra=extra, quantum_us=20_000_000)
    entries = await agree(gangs(5), Options(8, settings, switch_cost_us=500_000), tmp_path)
    if policy not in ("fifo", "sjf"):
        assert any(kind == "PreemptJob" for _, kind, _ in entries)


async def test_the_daemons_record_can_be_told_from_another(tmp_path: Path) -> None:
    """A comparison that cannot fail is none: one microsecond more makes the journals differ."""
    options = Options(1, Settings(policy="srtf"), 4 * GIB)
    jobs = lane_jobs(2, 20)
    longer = [replace(jobs[0], duration_us=jobs[0].duration_us + 1), *jobs[1:]]
    daemon = await by_the_daemon(jobs, options, tmp_path / "journal.sqlite")
    assert daemon != by_the_simulator(longer, options)
