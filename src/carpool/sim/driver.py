"""Virtual time: the core handles what modelled jobs do."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Sequence

from carpool.core.events import DeviceAdded, Event, Submitted, Tick
from carpool.core.machine import Machine
from carpool.core.model import Allocation, DeviceId, DeviceSpec, JobId, Micros
from carpool.plugins import ensure_policy
from carpool.sim.clock import Agenda
from carpool.sim.job import WHOLE_PPM, TraceJob
from carpool.sim.lanes import LaneJobs
from carpool.sim.ledger import Ledger
from carpool.sim.options import Options, check_options, core_settings
from carpool.sim.result import Result
from carpool.sim.specs import attempt_of, spec_of
from carpool.sim.whole import WholeDeviceJobs

#: So many timers of the core in a row, with nothing from any job between them, mean that nothing will ever happen again.
IDLE_TICKS = 100_000
PROGRESS_EVERY = 1000


class Stuck(ValueError):
    """The trace cannot be simulated to its end under this policy."""


def simulate(jobs: Sequence[TraceJob], options: Options, progress: Callable[[int], None] | None = None) -> Result:
    """Run a trace to its end.  ``progress`` is told, now and then, how many jobs have ended.

    Jobs may come in any order; those submitted at the same instant are taken in the order given.
    Raises ValueError for options that make no sense, and for jobs that cannot be simulated with them.
    """
    check_options(options)
    ensure_policy(options.settings.policy)
    collecting = gc.isenabled()
    gc.disable()  # millions of small objects that live to the end: looking for cycles among them takes half of the time
    begin = time.perf_counter()
    try:
        simulation = Simulation(jobs, options, progress)
        simulation.run()
    finally:
        if collecting:
            gc.enable()
    return simulation.result(time.perf_counter() - begin)


class Simulation:
    """The second driver of the core, beside the daemon."""

    def __init__(self, jobs: Sequence[TraceJob], options: Options, progress: Callable[[int], None] | None) -> None:
        self.options = options
        self.machine = Machine(core_settings(options))
        self.now: Micros = 0
        self.events = 0
        self._progress = progress
        self._told = 0
        self._agenda = Agenda()
        self.plan = self._agenda.plan
        self._inbox: deque[Event] = deque()
        self._busy = False
        self._trace = jobs
        self._order = sorted(range(len(jobs)), key=lambda place: jobs[place].submit_us)
        self._next = 0
        self._numbers = len(jobs)
        names: dict[DeviceId, int] = {f"gpu{number}": number for number in range(options.devices)}
        self.ledger = Ledger(jobs, options)
        whole = options.settings.allocation is Allocation.DEVICES
        self.world = (WholeDeviceJobs if whole else LaneJobs)(self, self.ledger, options, names)
        self.world.retry = self._retry
        for name in names:
            self.post(DeviceAdded(DeviceSpec(name, options.device_memory)))

    def post(self, event: Event) -> None:
        """Handle an event now, or right after those that are being handled."""
        self._inbox.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox:
                self._handle(self._inbox.popleft())
        finally:
            self._busy = False

    def _handle(self, event: Event) -> None:
        self.events += 1
        for command in self.machine.handle(event, self.now):
            self.world.execute(command)

    def run(self) -> None:
        """At each instant: what jobs do, then arrivals in the order of the trace, then the core's timers."""
        ticks = 0
        while self.ledger.left:
            when, timer = self._following()
            if when is None or ticks > IDLE_TICKS:
                raise Stuck(self._why_stuck())
            ticks = ticks + 1 if timer else 0
            self.now = when
            self._agenda.run(when)
            self._arrivals(when)
            if self._agenda.next() == when:
                continue
            due = self.machine.next_timer()
            if due is not None and due <= when:
                self.post(Tick())
            if self._progress is not None:
                self._tell()

    def _following(self) -> tuple[Micros | None, bool]:
        """The next instant at which anything happens, and whether it is only a timer of the core."""
        moments = [self._agenda.next()]
        if self._next < len(self._order):
            moments.append(self._trace[self._order[self._next]].submit_us)
        first = min((moment for moment in moments if moment is not None), default=None)
        due = self.machine.next_timer()
        if due is not None and (first is None or due < first):
            return max(due, self.now), True
        return first, False

    def _arrivals(self, now: Micros) -> None:
        order, trace = self._order, self._trace
        while self._next < len(order) and trace[order[self._next]].submit_us <= now:
            self._next += 1
            self._submit(self._next, order[self._next - 1], True)

    def _submit(self, number: JobId, place: int, first: bool) -> None:
        job = self._trace[place]
        self.ledger.place[number] = place
        attempt = attempt_of(job, first)
        self.world.submitted(number, job, attempt)
        self.post(Submitted(number, spec_of(job, attempt, self.options)))

    def _tell(self) -> None:
        ended = len(self._trace) - self.ledger.left
        if self._progress is not None and ended - self._told >= PROGRESS_EVERY:
            self._told = ended
            self._progress(ended)

    def _why_stuck(self) -> str:
        """Of the first job that would wait for ever."""
        number = min(number for number in self.machine.view().jobs if number in self.world.unfinished)
        reason = self.machine.explain(number)
        job = self._trace[self.ledger.place[number]]
        return (
            f"job {job.id} would never end under {self.options.settings.policy}:"
            f" {reason.text if reason else 'nothing happens any more'}; {self.ledger.left} jobs are left"
        )

    def result(self, wall_s: float) -> Result:
        ledger = self.ledger
        busy_us = ledger.busy_us + ledger.busy_ppm_us // WHOLE_PPM
        return Result(self.options, ledger.results, busy_us, self.events, wall_s, ledger.finished_recording())

    def _retry(self, number: JobId) -> bool:
        """Submit a job that has failed again, at once; False if it has had all its attempts."""
        place = self.ledger.place[number]
        result = self.ledger.results[place]
        if result.attempts > self.options.retries:
            return False
        result.attempts += 1
        self._numbers += 1
        self.plan(self.now, self._submit, self._numbers, place, False)
        return True
