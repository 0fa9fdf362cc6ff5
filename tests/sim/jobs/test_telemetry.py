"""What the core is told of a device's load: worked out by hand, and against a slow and simple model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.core.events import DeviceLoad, Event
from carpool.core.model import Load, Micros, Settings
from carpool.core.placement.filters.collocation import risk_ppm
from carpool.sim.driver import simulate
from carpool.sim.jobs.telemetry import IDLE, WINDOW, Level, ModelledTelemetry
from carpool.sim.model.agenda import Agenda
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import TraceJob
from tests.examples import examples

SECOND = 1_000_000
FULL: Level = (1_000_000, 500_000, 500_000)
SILENT = Load(0, 0, 0, 0)


class World:
    """Time that a test moves, and what it has been told."""

    def __init__(self, interval: Micros = SECOND) -> None:
        self.now: Micros = 0
        self.told: list[tuple[Micros, Load]] = []
        self._agenda = Agenda()
        self.plan = self._agenda.plan
        self.looks = 0
        self.device = ModelledTelemetry(self, "gpu0", interval)

    def post(self, event: Event) -> None:
        assert isinstance(event, DeviceLoad)
        assert event.device == "gpu0"
        assert event.load is not None
        self.told.append((self.now, event.load))

    def until(self, when: Micros) -> None:
        while (due := self._agenda.next()) is not None and due <= when:
            self.now = due
            self.looks += 1
            self._agenda.run(due)
        self.now = when

    def change(self, at: Micros, level: Level, before_looks: bool = False) -> None:
        """``before_looks``: the change comes before whatever else is planned for that moment."""
        self.until(at - 1 if before_looks else at)
        self.now = at
        self.device.change(level)


@pytest.mark.parametrize("before_looks", [False, True])
def test_the_first_looks(before_looks: bool) -> None:
    """Of 30 looks the last k saw 1.  k = 1: mean 1/30, median and p95 0, average 2/31: risk 0.0067 + 0.0129 = 2 %.

    k = 2: p95 lies between the 28th and the 29th of 30, at 0.55: 0.0133 + 0.165 + 0.025 = 20 %.
    k = 3: p95 is 1: 0.02 + 0.3 + 0.0363 = 36 %.  A look at the moment of a change sees what was before.
    """
    world = World()
    world.device.begin()
    world.change(SECOND, FULL, before_looks)
    world.change(4 * SECOND, IDLE, before_looks)
    assert world.told[0] == (0, SILENT)
    assert world.told[1:4] == [
        (2 * SECOND, Load(30_000, 20_000, 10_000, 10_000)),
        (3 * SECOND, Load(70_000, 200_000, 100_000, 100_000)),
        (4 * SECOND, Load(100_000, 360_000, 180_000, 180_000)),
    ]


def test_a_device_on_which_nothing_changes_costs_nothing() -> None:
    world = World()
    world.change(0, FULL)
    world.until(10**12)
    assert world.looks == WINDOW
    assert world.told[-1] == (WINDOW * SECOND, Load(1_000_000, 1_000_000, 500_000, 500_000))
    world.change(10**12 + 7, IDLE)
    world.until(2 * 10**12)
    assert world.looks == 2 * WINDOW
    assert world.told[-1] == (10**12 + WINDOW * SECOND, SILENT)


LEVELS = st.tuples(*(st.integers(0, 1_000_000) for _ in range(3)))


@given(st.lists(st.tuples(st.integers(1, 4_000_000), LEVELS), max_size=25), st.sampled_from([300_000, SECOND]))
@settings(deadline=None, max_examples=examples(60, fewer=25))
def test_as_if_every_look_were_taken(steps: Sequence[tuple[Micros, Level]], interval: Micros) -> None:
    world, changes, at = World(interval), [], 0
    for gap, level in steps:
        at += gap
        changes.append((at, level))
        world.change(at, level)
    end = at + 40 * interval
    world.until(end)
    assert dict(world.told) == _slowly(changes, interval, end)


def _slowly(changes: Sequence[tuple[Micros, Level]], interval: Micros, end: Micros) -> dict[Micros, Load]:
    """Every look of a whole run, each window from scratch."""
    window, told, last = [IDLE] * WINDOW, {}, SILENT
    for when in range(interval, end + 1, interval):
        seen = next((level for at, level in reversed(changes) if at < when), IDLE)
        window = [*window[1:], seen]
        active, occupancy, dram = ([level[which] for level in window] for which in range(3))
        load = Load(*map(_percent, (sum(active) // WINDOW, risk_ppm(active), risk_ppm(occupancy), risk_ppm(dram))))
        if load != last:
            told[when], last = load, load
    return told


def _percent(value: int) -> int:
    return math.floor(value / 10_000 + 0.5) * 10_000


# In a simulation


def loads(*jobs: TraceJob, **options: object) -> list[tuple[Micros, DeviceLoad]]:
    found: list[tuple[Micros, DeviceLoad]] = []

    def witness(now: Micros, happened: object) -> None:
        if isinstance(happened, DeviceLoad):
            found.append((now, happened))

    simulate(jobs, Options(**{"telemetry_us": SECOND, **options}), witness=witness)  # type: ignore[arg-type]
    return found


def test_a_short_job_and_a_long_pause() -> None:
    """A computes from 0 to 2.5 s: looks at 1 and 2 s see it; from 32 s on nothing of it is left.  B comes at 1000 s."""
    told = loads(TraceJob("A", 0, 2_500_000), TraceJob("B", 1000 * SECOND, 1_500_000))
    assert told[0] == (0, DeviceLoad("gpu0", SILENT))
    assert told[1] == (SECOND, DeviceLoad("gpu0", Load(30_000, 20_000, 10_000, 10_000)))
    quiet = [now for now, _ in told if 32 * SECOND < now <= 1000 * SECOND]
    assert quiet == []
    (*_, (before, last), (after, _)) = [*((now, event) for now, event in told if now <= 1001 * SECOND)]
    assert before <= 32 * SECOND
    assert last.load == SILENT
    assert after == 1001 * SECOND


def test_two_lanes_add_up_and_a_slow_one_counts_less() -> None:
    """0.4 + 0.4 side by side are 0.8; twice 0.8, each at 1/1.6 of its speed, are 1, with what each says of DRAM."""
    pair = [TraceJob(name, 0, 60 * SECOND, utilization_ppm=400_000, dram_ppm=300_000) for name in "AB"]
    assert loads(*pair, settings=_pack())[-1][1].load == Load(800_000, 800_000, 400_000, 600_000)
    crowd = [TraceJob(name, 0, 60 * SECOND, utilization_ppm=800_000, dram_ppm=400_000) for name in "AB"]
    assert loads(*crowd, settings=_pack())[-1][1].load == Load(1_000_000, 1_000_000, 500_000, 500_000)


def _pack() -> Settings:
    return Settings(policy="pack")


def test_host_time_counts_as_idle() -> None:
    """Half of each iteration is on the host: the counters say a half, occupancy and DRAM a quarter."""
    job = TraceJob("A", 0, 60 * SECOND, iterations=600, iteration_us=50_000, host_us=50_000)
    assert loads(job)[-1][1].load == Load(500_000, 500_000, 250_000, 250_000)
    assert loads(job, telemetry_us=0) == [], "nothing is measured unless asked"
