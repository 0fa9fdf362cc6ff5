"""Random histories of a modelled world: nothing contradicts itself, and in a fair world every job ends."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisDeprecationWarning
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from carpool.core import events
from carpool.core.model import (
    MIB,
    Demand,
    Estimate,
    JobSpec,
    Load,
    Memory,
    Outcome,
    Oversubscribe,
    Service,
    Serving,
    Settings,
)
from carpool.core.policies.placement import available_placements
from carpool.core.state.slowdown_table import FRESH_US
from tests.core.modelled.rules import possible, rule
from tests.core.seats import Program
from tests.core.serving import ServiceProcess
from tests.core.world import World
from tests.examples import examples

CAPACITY = 1000 * MIB
MODEL = " (concurrent)"
POLICIES = ("fair", "fifo", "pack", "srtf", "tq")
sizes = st.sampled_from([1, 7, 60, 150, 300, 420])
programs = st.builds(
    Program,
    persistent=sizes.map(lambda n: n * MIB),
    steps=st.lists(sizes.map(lambda n: n * MIB), min_size=1, max_size=3).map(tuple),
    iterations=st.integers(0, 6),
    code=st.sampled_from([0, 0, 0, 3]),
    attaches=st.sampled_from([True, True, True, True, False]),
    out_of_memory=st.sampled_from([0, 0, 0, 0, 1, 2]),
)
estimates = st.none() | st.builds(
    Estimate,
    memory=st.builds(Memory, sizes.map(lambda n: n * MIB), sizes.map(lambda n: n * MIB)),
    source=st.sampled_from(["hint", "history"]),
    iteration_us=st.none() | st.integers(100, 9000),
    iterations=st.none() | st.integers(1, 50),
)
switching = st.sampled_from([(0, 1_000_000), (50_000, 20_000), (3_000, 500_000)])
pick = st.integers(0, 30)
limits = st.tuples(st.none() | st.integers(1, 300_000), st.none() | st.integers(1, 60_000))
kinds = st.sampled_from(["", "x", "x", "y"])


class Histories(RuleBasedStateMachine):
    """Each rule is one thing that can happen; which job it happens to is picked among those there are."""

    oversubscribe = Oversubscribe.OFF
    devices = MappingProxyType({"host0": CAPACITY, "host1": CAPACITY // 2})

    def __init__(self) -> None:
        super().__init__()
        fast = Settings(quantum_us=0, max_switch_share_ppm=1_000_000, warm_timeout_us=300_000, kill_after_us=50_000)
        self.world = World(replace(fast, reserve_after_us=200_000), dict(self.devices), self.oversubscribe)
        self.programs: list[Program] = []

    def _submit(self, spec: JobSpec, program: Program) -> None:
        possible(len(self.world.specs) < 12)
        self.programs.append(replace(program))
        self.world.submit(spec, program)

    def _set(self, **changes: Any) -> None:
        self.world.settings = replace(self.world.settings, **changes)
        self.world.handle(events.SettingsChanged(self.world.settings))

    def _job(self, number: int) -> int:
        live = [job for job in self.world.specs if job not in self.world.ended]
        possible(live)
        return live[number % len(live)]

    @rule(
        program=programs,
        estimate=estimates,
        weight=st.sampled_from([50, 100, 300]),
        owner=st.sampled_from([0, 0, 1]),
        exclusive=st.sampled_from([False, False, False, False, True]),
        retries=st.sampled_from([0, 0, 1, 2]),
        kind=kinds,
    )
    def submit(
        self,
        program: Program,
        estimate: Estimate | None,
        weight: int,
        owner: int,
        exclusive: bool,
        retries: int,
        kind: str,
    ) -> None:
        iterations = program.iterations or None
        spec = JobSpec(owner, estimate=estimate, weight=weight, iterations=iterations, exclusive=exclusive)
        self._submit(replace(spec, retries=retries, kind=kind), program)

    @rule(
        program=programs,
        number=pick,
        pinned=st.sampled_from([None, "host0", "host1"]),
        kind=st.sampled_from(["after", "after", "after_any", "after_notok"]),
    )
    def submit_after(self, program: Program, number: int, pinned: str | None, kind: str) -> None:
        possible(self.world.specs)
        after = {kind: (number % len(self.world.specs) + 1,)}
        self._submit(replace(JobSpec(0, device=pinned), **after), program)

    @rule(program=programs, begin=st.integers(0, 400_000), held=st.booleans())
    def submit_for_later(self, program: Program, begin: int, held: bool) -> None:
        self._submit(JobSpec(0, begin_us=self.world.now + begin, held_by="root" if held else None), program)

    @rule(number=pick, weight=st.sampled_from([50, 300]), begin=st.none() | st.integers(0, 200_000), limit=limits)
    def update(self, number: int, weight: int, begin: int | None, limit: tuple[int | None, int | None]) -> None:
        begin_us = None if begin is None else self.world.now + begin
        changes = {"weight": weight, "begin_us": begin_us, "time_us": limit[0], "device_time_us": limit[1]}
        self.world.update(self._job(number), **changes, limit_signal=10, limit_signal_us=30_000)

    @rule(device=st.sampled_from(["host0", "host1"]), why=st.sampled_from(["", "drained"]))
    def drain(self, device: str, why: str) -> None:
        self.world.drain(device, why)

    @rule(number=pick, by=st.sampled_from([None, "root", "root"]))
    def pause(self, number: int, by: str | None) -> None:
        job = self._job(number)
        possible((service := self.world.specs[job].service) is None or service.engine)
        self.world.pause(job, by)

    @rule(number=pick)
    def requeue(self, number: int) -> None:
        self.world.requeue(self._job(number))

    @rule(number=pick, by=st.sampled_from([None, "root"]))
    def hold(self, number: int, by: str | None) -> None:
        self.world.hold(self._job(number), by)

    @rule(number=pick, times=st.integers(1, 8))
    def move(self, number: int, times: int) -> None:
        job = self._job(number)
        for _ in range(times):
            self.world.step(job)

    @rule(number=pick)
    def hear(self, number: int) -> None:
        self.world.deliver(self._job(number))

    @rule(times=st.integers(1, 12))
    def everybody(self, times: int) -> None:
        for _ in range(times):
            for job in list(self.world.specs):
                self.world.deliver(job)
                self.world.step(job)

    @rule(delay=st.sampled_from([10, 5_000, 60_000, 400_000]))
    def time(self, delay: int) -> None:
        self.world.tick(self.world.now + delay)

    @rule(number=pick, alone=st.sampled_from([None, "talks"]), immovable=st.sampled_from([None, None, "shared"]))
    def show(self, number: int, alone: str | None, immovable: str | None) -> None:
        job = self._job(number)
        possible(self.world.processes[job].attached)
        guest = self.world.specs[job].checkpoint
        self.world.has_traits(job, alone, None if guest else immovable)

    @rule(number=pick, there=st.booleans())
    def beside(self, number: int, there: bool) -> None:
        """A process of a job that nobody speaks for uses its device, or does not any more."""
        job = self._job(number)
        process = self.world.processes[job]
        possible(process.alive and not process.attached)
        self.world.handle(events.TraitsSeen(job, "beside" if there else None))

    @rule(number=pick)
    def interrupt(self, number: int) -> None:
        """Ctrl-C while it waits for memory; the program goes on."""
        process = self.world.processes[self._job(number)]
        possible(process.alive and process.asked is not None)
        process.withdraws()

    @rule(number=pick)
    def cancel(self, number: int) -> None:
        self.world.handle(events.CancelRequested(self._job(number)))

    @rule(number=pick)
    def kill(self, number: int) -> None:
        self.world.kill(self._job(number), 9)

    @rule(policy=st.sampled_from(POLICIES), switching=switching, max_lanes=st.sampled_from([None, 1, 2]))
    def change(self, policy: str, switching: tuple[int, int], max_lanes: int | None) -> None:
        quantum, share = switching
        self._set(policy=policy, quantum_us=quantum, max_lanes=max_lanes, max_switch_share_ppm=share)

    @rule(device=st.sampled_from(["host0", "host1"]), size=st.sampled_from([0, 100, 400, 900]), programs=st.booleans())
    def others_hold(self, device: str, size: int, programs: bool) -> None:
        self.world.others_hold(device, size * MIB, programs)

    @rule(spare=st.sampled_from([0, 30, 60, 200]))
    def spare(self, spare: int) -> None:
        """On the device where jobs take something by being there."""
        self.world.is_larger("host1", spare * MIB)

    @rule(kind=kinds, beside=kinds, ms=st.sampled_from([50, 100, 160, 300]), far=st.booleans())
    def know(self, kind: str, beside: str, ms: int, far: bool) -> None:
        """What an earlier daemon has measured: this week, or long ago."""
        possible(kind)
        when = self.world.now - (2 * FRESH_US if far else 0)
        self.world.handle(events.PaceKnown(MODEL, kind, beside, ms * 100_000, 100, when))

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @invariant()
    def every_wait_has_a_reason(self) -> None:
        view = self.world.machine.view()
        for number, job in view.jobs.items():
            reason = self.world.machine.explain(number)
            if job.phase == "queued" or job.waiting_memory or job.waiting:
                assert reason is not None and reason.text

    def teardown(self) -> None:
        self.world.finish()
        for number, command in self.world.ended.items():
            largest = self.programs[number - 1].persistent + sum(self.programs[number - 1].steps)
            immovable = any(process.immovable for process in self.world.processes.values())
            if command.outcome is Outcome.FAILED and command.code == 1 and not immovable:
                # Only who does not fit beside its own context runs out of memory (1/64 of spare and a step of rounding
                # per class).
                most = CAPACITY // 2 - self.world.context(CAPACITY // 2)
                assert largest > most - CAPACITY // 32 - 2 * self.world.settings.growth_step


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=int(os.environ.get("CARPOOL_HISTORIES", examples(100, fewer=30))),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class CrowdedHistories(Histories):
    """The same on devices that jobs may oversubscribe, with a host store that may be small, and moves that fail."""

    oversubscribe = Oversubscribe.AUTO

    @rule(number=pick, times=st.integers(1, 2))
    def refuse_to_move(self, number: int, times: int) -> None:
        self.world.processes[self._job(number)].unwilling = times

    @rule(store=st.sampled_from([None, 3000 * MIB, 1200 * MIB]))
    def budget(self, store: int | None) -> None:
        self.world.most_kept = self.world.kept()
        self._set(host_store=store)

    @rule(
        device=st.sampled_from(["host0", "host1"]),
        mode=st.sampled_from(list(Oversubscribe)),
        quantum=st.sampled_from([None, 0, 2_000, 1_000_000]),
    )
    def control(self, device: str, mode: Oversubscribe, quantum: int | None) -> None:
        self.world.handle(events.DeviceChanged(device, quantum, mode))

    @rule(device=st.sampled_from(["host0", "host1"]), reserve=st.sampled_from([0, 100, 300, 900]))
    def keep(self, device: str, reserve: int) -> None:
        self.world.keep(device, reserve * MIB)


TestCrowdedHistories = CrowdedHistories.TestCase
TestCrowdedHistories.settings = TestHistories.settings


bound = st.builds(
    Program,
    persistent=st.sampled_from([60, 300, 600]).map(lambda n: n * MIB),
    steps=st.lists(st.sampled_from([7, 300]).map(lambda n: n * MIB), min_size=1, max_size=2).map(tuple),
    iterations=st.integers(1, 4),
    alone=st.sampled_from([None, None, "talks"]),
    immovable=st.sampled_from([None, "shared"]),
)


class BoundHistories(CrowdedHistories):
    """The same where many jobs need their device to themselves, or cannot be moved."""

    @rule(program=bound, owner=st.sampled_from([0, 0, 1]))
    def submit_bound(self, program: Program, owner: int) -> None:
        self._submit(JobSpec(owner, device="host0"), program)


class SuspendedHistories(BoundHistories):
    """The same with checkpoint jobs among them."""

    @rule(
        size=st.sampled_from([7, 300, 420]),
        iterations=st.integers(1, 20),
        owner=st.sampled_from([0, 0, 1]),
        device=st.sampled_from(["host0", "host0", "host1"]),
    )
    def submit_suspended(self, size: int, iterations: int, owner: int, device: str) -> None:
        self._submit(JobSpec(owner, device=device, checkpoint=True, kind="y"), Program(size * MIB, (), iterations))


TestBoundHistories = BoundHistories.TestCase
TestBoundHistories.settings = TestHistories.settings

TestSuspendedHistories = SuspendedHistories.TestCase
TestSuspendedHistories.settings = TestHistories.settings


#: MiB of weights by key.
SIZES = {"a": 60, "b": 300, "c": 470}


class ServedHistories(SuspendedHistories):
    """The same with services among them, some of whose models are larger than the smaller device."""

    @initialize(
        keys=st.lists(st.sampled_from(sorted(SIZES)), min_size=2, max_size=2),
        by=st.sampled_from([None, 0, 50, 5000]),
        persistent=st.sampled_from([60, 300, 700]),
    )
    def begin(self, keys: list[str], by: int | None, persistent: int) -> None:
        """There is somebody to preempt, and somebody who does it."""
        for size in (persistent, 7):
            self._submit(JobSpec(0, device="host0"), Program(size * MIB, (60 * MIB, 60 * MIB), 12))
        for owner in (0, 1):
            self.submit_service(7, 6, owner, "host0", [(key, by) for key in keys], 100)

    @rule(
        ephemeral=st.sampled_from([0, 7, 60]),
        batches=st.integers(1, 6),
        owner=st.sampled_from([0, 0, 1]),
        device=st.sampled_from(["host0", "host0", "host1"]),
        keys=st.lists(st.tuples(st.sampled_from(sorted(SIZES)), st.none() | st.integers(0, 400)), max_size=3),
        priority=st.sampled_from([50, 100]),
    )
    def submit_service(
        self, ephemeral: int, batches: int, owner: int, device: str, keys: list[tuple[str, int | None]], priority: int
    ) -> None:
        possible(len(self.world.specs) < 12)
        program = Program(0, (ephemeral * MIB,), batches)
        wanted = tuple(
            Demand(key, SIZES[key] * MIB, SIZES[key] * 1000, 1000, None if by is None else self.world.now + by * 1000)
            for key, by in keys
        )
        self.programs.append(replace(program, persistent=max((each.size for each in wanted), default=0)))
        self.world.submit(JobSpec(owner, device=device, service=Service(priority)), program, wanted)

    @rule(
        program=programs,
        estimate=estimates,
        owner=st.sampled_from([0, 0, 1]),
        device=st.sampled_from(["host0", "host0", "host1"]),
        pinned=st.sampled_from([False, False, True]),
    )
    def submit_engine(self, program: Program, estimate: Estimate | None, owner: int, device: str, pinned: bool) -> None:
        service = Service(engine=True, pinned=pinned)
        self._submit(JobSpec(owner, device=device, estimate=estimate, service=service), program)

    @rule(number=pick, busy=st.booleans())
    def requests(self, number: int, busy: bool) -> None:
        """They come to an engine, or end."""
        job = self._job(number)
        service = self.world.specs[job].service
        possible(service is not None and service.engine)
        self.world.say_busy(job, busy)

    @rule(number=pick, served=st.sampled_from([True, True, True, False]))
    def served(self, number: int, served: bool) -> None:
        job = self._job(number)
        service = self.world.specs[job].service
        possible(service is not None and service.engine)
        self.world.say_served(job, served)

    @rule()
    def fronts_end_engines(self) -> None:
        for job in sorted(self.world.to_end - self.world.busy - self.world.ended.keys()):
            self.world.handle(events.CancelRequested(job))
        self.world.to_end.clear()

    @rule(serving=st.sampled_from(list(Serving)), patience=st.sampled_from([0, 3_000, 20_000]))
    def serve_otherwise(self, serving: Serving, patience: int) -> None:
        self._set(serving=serving, service_patience_us=patience)

    @rule(number=pick)
    def signal(self, number: int) -> None:
        """Ctrl-C while it waits for its turn."""
        job = self._job(number)
        process = self.world.processes[job]
        possible(process.attached and process.want and not process.turn and not process.channel)
        demand = process.demand if isinstance(process, ServiceProcess) else None
        self.world.handle(events.TurnWanted(job, urgent=True, demand=demand))


TestServedHistories = ServedHistories.TestCase
TestServedHistories.settings = TestHistories.settings

PLACEMENTS = available_placements()
ppm = st.sampled_from([0, 300_000, 500_000, 950_000])


class PlacedHistories(Histories):
    """Several devices, jobs for some of them at once, all placement policies, loads, windows, bounds."""

    devices = MappingProxyType(
        {"host0": CAPACITY, "host1": CAPACITY // 2, "host2": CAPACITY // 2, "host3": CAPACITY // 2}
    )

    @rule(
        program=programs,
        estimate=estimates,
        gang=st.sampled_from([2, 2, 3, 4]),
        device=st.sampled_from([None, None, ("host1", "host2", "host3", "host0"), ("host3", "host1", "host2")]),
    )
    def submit_gang(self, program: Program, estimate: Estimate | None, gang: int, device: tuple[str, ...]) -> None:
        self._submit(JobSpec(0, gang=gang, device=device, estimate=estimate, kind="x"), program)

    @rule(
        placement=st.sampled_from(PLACEMENTS),
        strict=st.sampled_from([0, 1]),
        window_us=st.sampled_from([0, 20_000, 500_000]),
        warm_limit=st.sampled_from([1, 2]),
        max_jobs=st.sampled_from([None, None, 1, 3]),
        use_estimates=st.sampled_from([0, 1, 1]),
    )
    def place_otherwise(
        self, placement: str, strict: int, window_us: int, warm_limit: int, max_jobs: int | None, use_estimates: int
    ) -> None:
        warmth = {"warm_limit": warm_limit, "warm_window_us": window_us}
        self._set(
            placement=placement, placement_strict=strict, max_jobs=max_jobs, use_estimates=use_estimates, **warmth
        )

    @rule(device=st.sampled_from(sorted(devices)), active=st.none() | ppm, occupancy=st.none() | ppm)
    def load(self, device: str, active: int | None, occupancy: int | None) -> None:
        """None: nobody knows any more."""
        load = None if active is None else Load(active, active, occupancy, None)
        self.world.handle(events.DeviceLoad(device, load, "" if load else "no answer"))

    @rule(free=st.integers(-300, 3000), cores=st.integers(1, 4), used=st.integers(0, 400), idle=st.booleans())
    def measure_the_machine(self, free: int, cores: int, used: int, idle: bool) -> None:
        """What all jobs have; of those that have ended, too."""
        jobs = dict.fromkeys(sorted(self.world.specs), used * MIB)
        self.world.handle(events.HostMeasured(free * MIB, cores, jobs, tuple(jobs) if idle else ()))

    @invariant()
    def asking_why_changes_nothing(self) -> None:
        machine = self.world.machine
        before = machine.view()
        for number in before.queue:
            made = machine.placement(number)
            assert made is not None and not any(row.chosen for row in made.rows)
        assert machine.view() == before


TestPlacedHistories = PlacedHistories.TestCase
TestPlacedHistories.settings = TestHistories.settings


class DriverHistories(PlacedHistories):
    """The same where memory that is not there is an error: then jobs may fail by others' memory, but all end."""

    def __init__(self) -> None:
        super().__init__()
        self._set(refuse_growth=1)

    def teardown(self) -> None:
        self.world.finish()


TestDriverHistories = DriverHistories.TestCase
TestDriverHistories.settings = TestHistories.settings


# Found at random, and told step by step


def rules_changed(state: Histories) -> None:
    """The same settings again: everything is decided anew."""
    state.world.handle(events.SettingsChanged(state.world.settings))


@pytest.fixture
def served() -> Iterator[ServedHistories]:
    """In the end every job ends."""
    state = ServedHistories()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisDeprecationWarning)
        yield state
        state.teardown()


def test_a_holder_that_turns_out_to_need_its_device_to_itself_keeps_its_turn(served: ServedHistories) -> None:
    """It had been asked to pause, and then, as it waited for memory, for its turn at once."""
    served.begin(keys=["c", "a"], by=None, persistent=700)
    served.everybody(times=5)
    served.restart()
    served.show(number=1, alone="talks", immovable=None)


def test_a_holder_that_paused_for_services_that_have_ended_goes_on_after_a_restart(served: ServedHistories) -> None:
    """The daemon had not heard that the job had paused."""
    served.begin(keys=["a", "a"], by=None, persistent=60)
    served.cancel(number=2)
    served.everybody(times=11)
    served.kill(number=2)
    served.restart()


def test_a_service_whose_weights_are_in_the_way_of_who_is_being_measured_may_grow(served: ServedHistories) -> None:
    """All that it kept on the device were the weights of its turn."""
    served.begin(keys=["c", "a"], by=None, persistent=700)
    served.control(device="host0", mode=Oversubscribe.OFF, quantum=None)
    served.beside(number=1, there=True)
    served.change(max_lanes=None, policy="fair", switching=(0, 1_000_000))


def test_a_turn_that_was_to_follow_does_not_when_another_gets_the_device_back(served: ServedHistories) -> None:
    """A service that needs its device to itself waits for weights beside memory that cannot move."""
    served.begin(keys=["a", "c"], by=None, persistent=60)
    served.kill(number=0)
    rules_changed(served)
    large = Program(persistent=600 * MIB, steps=(7 * MIB,), iterations=2, immovable="shared")
    served.submit_bound(owner=0, program=large)
    served.cancel(number=0)
    served.everybody(times=11)
    for _ in range(3):
        rules_changed(served)
    served.show(alone="talks", immovable=None, number=0)
    for _ in range(3):
        rules_changed(served)


def test_who_has_the_device_to_itself_is_not_asked_by_those_whom_it_keeps_out(served: ServedHistories) -> None:
    """A service that was found to be exclusive had preempted a job, which then heard a signal."""
    served.begin(keys=["a", "a"], by=None, persistent=60)
    served.requeue(number=21)
    served.everybody(times=1)
    served.move(number=0, times=1)
    served.submit_for_later(begin=1, held=False, program=Program(MIB, (MIB,), 0))
    served.everybody(times=6)
    rules_changed(served)
    served.everybody(times=3)
    served.show(alone="talks", immovable=None, number=27)
    rules_changed(served)
    served.kill(number=3)
    rules_changed(served)
    served.signal(number=0)
