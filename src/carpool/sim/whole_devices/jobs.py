"""Modelled jobs on whole devices: they run for their length, and stop where they are when they are preempted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from carpool.core import commands
from carpool.core.commands import Command
from carpool.core.events import Preempted, ProcessExited, ProcessStarted
from carpool.core.model import DeviceId, JobId, Micros, Outcome, Usage
from carpool.sim.jobs.ledger import Ledger
from carpool.sim.model.agenda import Driver
from carpool.sim.model.job_specs import SimulatedAttempt
from carpool.sim.model.options import Options
from carpool.sim.model.result import JobResult
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob


class WholeDeviceRun:
    """One attempt of a job.  ``turn`` tells a valid end from one that a preemption has put off."""

    __slots__ = (
        "began_us",
        "code",
        "devices",
        "held_us",
        "left_us",
        "number",
        "ready_us",
        "result",
        "total_us",
        "turn",
    )

    def __init__(self, number: JobId, result: JobResult, attempt: SimulatedAttempt) -> None:
        self.number = number
        self.result = result
        self.total_us = self.left_us = attempt.work_us
        self.code = attempt.code
        self.devices: tuple[DeviceId, ...] = ()
        self.began_us: Micros | None = None  # when it got its devices
        self.ready_us = 0  # when it begins to work: later by the cost of the switch
        self.held_us = 0
        self.turn = 0


class WholeDeviceJobs:
    """Carries out the core's commands on modelled jobs."""

    def __init__(self, driver: Driver, ledger: Ledger, options: Options, devices: dict[DeviceId, int]) -> None:
        self._driver = driver
        self._ledger = ledger
        self._switch_us = options.switch_cost_us
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
        return self._runs.keys()

    def submitted(self, number: JobId, job: TraceJob, attempt: SimulatedAttempt) -> None:
        """Make a run for a job that comes, for the first time or again."""
        self._runs[number] = WholeDeviceRun(number, self._ledger.result(number), attempt)

    def execute(self, command: Command) -> None:
        self._table[type(command)](command)

    def _allocate(self, command: commands.AllocateDevices) -> None:
        run, now = self._runs[command.job], self._driver.now
        run.devices, run.began_us, run.ready_us = command.devices, now, now
        if run.turn:
            run.ready_us += self._switch_us
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
        self._driver.post(
            Preempted(run.number, Usage(device_us=run.total_us - run.left_us, switch_cost_us=self._switch_us))
        )

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
