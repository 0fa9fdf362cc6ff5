"""Modelled jobs on whole devices: they run for their length, and stop where they are when they are preempted.

The order in which jobs get whole devices.

The order is stable: jobs of equal key keep the order they had, which is encoded in numbers.  A job whose key has become
larger since it was last looked at goes before all that have this key, one whose key has become smaller goes behind
them, and a new job comes last.  So only the keys of running jobs are ever computed again, and a pass costs the same
however many jobs wait.

Waiting jobs lie in one heap for each number of devices that they need.  Stale entries, of jobs that wait no more or at
another place, stay in the heaps and are skipped.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from carpool.core import commands
from carpool.core.commands import Command
from carpool.core.events import InvariantError, Preempted, ProcessExited, ProcessStarted
from carpool.core.model import DeviceId, JobId, JobPhase, Micros, Outcome, Usage
from carpool.core.policies.base import Key
from carpool.core.state.job import Job, Order
from carpool.sim.jobs.ledger import Ledger
from carpool.sim.model.agenda import Driver
from carpool.sim.model.job_specs import SimulatedAttempt
from carpool.sim.model.options import Options
from carpool.sim.model.result import JobResult
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob

ALIVE = (JobPhase.QUEUED, JobPhase.STARTING, JobPhase.RUNNING)


class WaitingOrder:
    """The jobs that wait, by number of devices; ``running``, which the caller updates: the jobs that do not."""

    def __init__(self, running: dict[JobId, Job]) -> None:
        self._running = running
        self._heaps: dict[int, list[tuple[Order, Job]]] = {}  # by the number of devices
        self._gangs: dict[JobId, int] = {}  # of each of them
        self.wanted = 0  # devices that all of them need together
        self._last = 0  # the largest and
        self._first = 0  # the smallest number given out to order equal keys

    def behind(self, key: Key, rank: int) -> Order:
        """Return a place behind all jobs that have this key and rank (see `Order`)."""
        self._last += 1
        return key, rank, self._last

    def before(self, key: Key, rank: int) -> Order:
        """Return a place before all jobs that have this key and rank."""
        self._first -= 1
        return key, rank, self._first

    def wait(self, job: Job) -> None:
        """Let the job wait at its place in the order, ``job.order``."""
        self.forget(job.id)
        self._gangs[job.id] = job.spec.gang
        self.wanted += job.spec.gang
        heap = self._heaps.get(job.spec.gang)
        if heap is None:
            heap = self._heaps[job.spec.gang] = []
        heapq.heappush(heap, (job.order, job))

    def best(self, fitting: int) -> tuple[Order, Job] | None:
        """Find the first waiting job that needs no more than ``fitting`` devices; None: there is none."""
        best = None
        for gang, heap in self._heaps.items():
            if heap and gang <= fitting and (head := self._head(heap)) and (best is None or head[0] < best[0]):
                best = head
        return best

    def _head(self, heap: list[tuple[Order, Job]]) -> tuple[Order, Job] | None:
        """Find the first entry of a heap whose job still waits there, and remove stale ones before it."""
        while heap:
            order, job = heap[0]
            if self._waits(order, job):
                return heap[0]
            heapq.heappop(heap)
        return None

    def take(self, job: Job) -> None:
        """Remove ``job``, which `best` has found, from the jobs that wait."""
        self.forget(job.id)
        heapq.heappop(self._heaps[job.spec.gang])

    def withdraw(self, job: Job) -> None:
        """Remove ``job``, wherever it stands, from the jobs that wait."""
        self.forget(job.id)
        heap = self._heaps.get(job.spec.gang, [])
        heap[:] = [entry for entry in heap if entry[1] is not job]
        heapq.heapify(heap)

    def clear(self) -> None:
        """Remove all waiting jobs."""
        self._heaps, self._gangs, self.wanted = {}, {}, 0

    def forget(self, number: JobId) -> None:
        """Count a job no more that does not wait, or not any more; its entry is skipped later."""
        self.wanted -= self._gangs.pop(number, 0)

    def may_wait(self) -> bool:
        """Whether any entry is left: of a job that waits, or a stale one that has not been skipped yet."""
        return any(self._heaps.values())

    def check(self) -> None:
        """Raise InvariantError unless the jobs that wait are counted."""
        waiting = {
            job.id: job.spec.gang for heap in self._heaps.values() for order, job in heap if self._waits(order, job)
        }
        if waiting != self._gangs or self.wanted != sum(waiting.values()):
            raise InvariantError(f"{waiting} wait, and {self._gangs} are counted as {self.wanted}")

    def _waits(self, order: Order, job: Job) -> bool:
        return job.order is order and job.id not in self._running and job.phase in ALIVE

    def entries(self) -> set[tuple[Order, JobId]]:
        """Return all entries of the heaps, stale ones included."""
        return {(order, job.id) for heap in self._heaps.values() for order, job in heap}


@dataclass(eq=False, slots=True)
class WholeDeviceRun:
    """One attempt of a job.  ``turn`` tells a valid end from one that a preemption has put off."""

    number: JobId
    result: JobResult
    code: int
    total_us: Micros
    left_us: Micros
    devices: tuple[DeviceId, ...] = ()
    began_us: Micros | None = None  # when it got its devices
    ready_us: Micros = 0  # when it begins to work: later by the cost of the switch
    held_us: Micros = 0
    turn: int = 0


class WholeDeviceJobs:
    """Carries out the core's commands on modelled jobs."""

    def __init__(self, driver: Driver, ledger: Ledger, options: Options, devices: dict[DeviceId, int]) -> None:
        self._driver = driver
        self._ledger = ledger
        self._switch_us = options.switch_us
        self._devices = devices
        self._runs: dict[JobId, WholeDeviceRun] = {}
        self.retry: Callable[[JobId], bool] = lambda number: False
        self._table: dict[type, Callable[[Any], None]] = {
            commands.AllocateDevices: self._allocate,
            commands.PreemptJob: self._preempt,
            commands.EndJob: self._end,
        }

    def begin(self) -> None:
        """Do nothing: whole devices are not measured, because no job joins another there."""

    @property
    def unfinished(self) -> Collection[JobId]:
        """The numbers of the jobs that have not ended."""
        return self._runs.keys()

    def submitted(self, number: JobId, job: TraceJob, attempt: SimulatedAttempt) -> None:
        """Make a run for a job that comes, for the first time or again."""
        result, work_us = self._ledger.result(number), attempt.work_us
        self._runs[number] = WholeDeviceRun(number, result, attempt.code, total_us=work_us, left_us=work_us)

    def execute(self, command: Command) -> None:
        """Carry a command out."""
        self._table[type(command)](command)

    def _allocate(self, command: commands.AllocateDevices) -> None:
        run, now = self._runs[command.job], self._driver.now
        run.devices, run.began_us, run.ready_us = command.devices, now, now
        if run.turn:
            run.ready_us += self._switch_us(run.result.job)
        else:
            result = run.result
            if result.started_us is None:
                result.started_us = now
            self._driver.post(ProcessStarted(run.number))
        self._driver.plan(run.ready_us + run.left_us, self._finish, run, run.turn)

    def _finish(self, run: WholeDeviceRun, turn: int) -> None:
        if run.turn == turn:
            run.left_us = 0
            self._driver.post(ProcessExited(run.number, run.code))

    def _preempt(self, command: commands.PreemptJob) -> None:
        run, now = self._runs[command.job], self._driver.now
        run.left_us -= max(0, now - run.ready_us)
        run.turn += 1
        self._vacate(run)
        run.result.preemptions += 1
        switch_us = self._switch_us(run.result.job)
        usage = Usage(device_us=run.total_us - run.left_us, switch_cost_us=switch_us)
        self._driver.post(Preempted(run.number, usage))

    def _vacate(self, run: WholeDeviceRun) -> None:
        assert run.began_us is not None, "it has devices"
        now = self._driver.now
        run.held_us += now - run.began_us
        for name in run.devices:
            self._ledger.span(run.number, self._devices[name], 0, run.began_us, now)
        time_us = (now - run.began_us) * len(run.devices)
        self._ledger.busy_ppm_us += WHOLE_PPM * time_us
        self._ledger.occupied_us += time_us
        run.devices, run.began_us = (), None

    def _end(self, command: commands.EndJob) -> None:
        run = self._runs.pop(command.job)
        if run.devices:
            self._vacate(run)
        result = run.result
        result.service_us += run.held_us
        if command.outcome is Outcome.FAILED and self.retry(run.number):
            return
        self._ledger.ended(command, self._driver.now)
