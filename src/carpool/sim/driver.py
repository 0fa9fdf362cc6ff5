"""Virtual time: passes events of modelled jobs to the core."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

from carpool.core.commands import Command
from carpool.core.events import Event, Tick
from carpool.core.machine import Inbox
from carpool.core.model import Micros
from carpool.plugins import ensure_placement, ensure_policy
from carpool.sim.model.options import Options, check_options, core_settings
from carpool.sim.model.result import Result
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob
from carpool.sim.whole_devices.allocator import machine_for
from carpool.sim.world import Scene

#: Most timers of the core in a row while no job has anything planned, or with hardly any time between them: more mean
#: a policy that never lets any job run, or one that asks to be called again without end.
IDLE_TICKS = 100_000
RESTLESS_US = 10
PROGRESS_EVERY = 20  # jobs
TICK = Tick()
Witness = Callable[[Micros, Event | Command], None]


class Stuck(ValueError):
    """The trace cannot be simulated to its end under this policy."""


def simulate(
    jobs: Sequence[TraceJob],
    options: Options,
    progress: Callable[[int], None] | None = None,
    witness: Witness | None = None,
) -> Result:
    """Run a trace to its end.  ``progress`` is called now and then with the number of jobs that have ended.

    Jobs may come in any order; those submitted at the same instant are taken in the order given.  ``witness`` sees
    every event and command of the core in order, as a daemon's journal would.  Raises ValueError for invalid options,
    and for jobs that cannot be simulated with them.
    """
    ensure_policy(options.settings.policy)
    ensure_placement(options.settings.placement)
    check_options(options)
    collecting = gc.isenabled()
    gc.disable()  # jobs live to the end: looking for cycles among millions of them takes half of the time
    begin = time.perf_counter()
    try:
        simulation = Simulation(jobs, options, witness)
        simulation.run(progress)
    finally:
        if collecting:
            gc.enable()
    return simulation.result(time.perf_counter() - begin)


class PolicyFailed(ValueError):
    """A user's policy raised an error, or gave an invalid answer."""


class Simulation:
    """The second driver of the core, beside the daemon's loop: one event at a time; commands before further events."""

    def __init__(self, jobs: Sequence[TraceJob], options: Options, witness: Witness | None = None) -> None:
        self._options = options
        self._count = len(jobs)
        self._machine = machine_for(core_settings(options), records=False)
        self._witness = witness
        self._events = 0
        self._post = Inbox(self._handle).post
        self._scene = Scene(jobs, options, self._post)
        self._scene.begin()

    def _handle(self, event: Event) -> None:
        self._events += 1
        now = self._scene.now
        commands = self._machine.handle(event, now)
        if self._witness is not None:
            for happened in (event, *commands):
                self._witness(now, happened)
        for command in commands:
            self._scene.execute(command)

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Run: at each instant first jobs, then arrivals, then the core's timers.  Raises Stuck, PolicyFailed."""
        ledger = self._scene.ledger
        ticks = told = 0
        while ledger.left:
            ticks = self._step(ticks)
            if progress is not None and self._count - ledger.left >= told + PROGRESS_EVERY:
                told = self._count - ledger.left
                progress(told)
        self._check_policies()

    def _step(self, ticks: int) -> int:
        """Go on to what happens next.  Return how many timers in a row have led to nothing; ``ticks``: so far.

        Raises Stuck where nothing is planned, or there are too many.
        """
        scene = self._scene
        planned, due = scene.next(), self._machine.next_timer()
        if due is not None and (planned is None or due < planned):
            ticks = ticks + 1 if planned is None or due - scene.now < RESTLESS_US else 0
            scene.now = max(due, scene.now)
            self._post(TICK)
        elif planned is not None:
            ticks = 0
            scene.run(planned)
        if (planned is None and due is None) or ticks > IDLE_TICKS:
            raise Stuck(self._why_stuck())
        return ticks

    def _check_policies(self) -> None:
        settings, machine = self._options.settings, self._machine
        if machine.policy_fault is not None:
            raise PolicyFailed(f"the policy {settings.policy} is wrong: {machine.policy_fault}")
        if machine.placement_fault is not None:
            raise PolicyFailed(f"the placement policy {settings.placement} is wrong: {machine.placement_fault}")

    def _why_stuck(self) -> str:
        """Return why the first unfinished job would wait for ever."""
        left = self._scene.ledger.left
        unfinished = self._scene.unfinished()
        if not unfinished:
            return f"{left} workers of the services would wait for ever under {self._options.settings.policy}"
        number, job = next(iter(unfinished.items()))
        reason = self._machine.explain(number)
        why = self._machine.policy_fault or (reason.text if reason else "nothing happens but timers of the policy")
        return f"job {job.id} would never end under {self._options.settings.policy}: {why}; {left} jobs are left"

    def result(self, wall_s: float) -> Result:
        """Return the result.  ``wall_s``: real seconds that the simulation took."""
        ledger = self._scene.ledger
        busy_us = ledger.busy_ppm_us // WHOLE_PPM
        recording, times_us = ledger.finished_recording(), (ledger.occupied_us, ledger.left_us)
        results = (ledger.results, busy_us, self._events, wall_s, recording)
        return Result(self._options, *results, *times_us, ledger.services)
