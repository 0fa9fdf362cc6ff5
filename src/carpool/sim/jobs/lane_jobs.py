"""Modelled jobs in lanes: they ask for memory, wait for turns, compute beside other lanes, and give way.

A modelled job does what the runtime does (`docs/internals/contract.md`): it keeps its turn until its seat asks for it,
gives way at the end of an iteration, or earlier if it is watched and off the device for longer than the grace, and
wakes the successor named in its seat itself.  Memory in the host store comes back when the job's next turn begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from carpool.core import commands
from carpool.core.commands import Command
from carpool.core.events import Attached, Offloaded, ProcessStarted, Sampled
from carpool.core.model import Cause, DeviceId, JobId, LaneId, Memory, Micros, Outcome
from carpool.sim.jobs.ledger import Ledger
from carpool.sim.jobs.modelled_device import ModelledDevice
from carpool.sim.jobs.modelled_host import hosts_of
from carpool.sim.jobs.modelled_job import SeatedJob
from carpool.sim.jobs.pausing import Pausing
from carpool.sim.jobs.telemetry import ModelledTelemetry
from carpool.sim.jobs.turn_taking import TurnTaking
from carpool.sim.model.agenda import Driver
from carpool.sim.model.job_specs import SimulatedAttempt, resumed
from carpool.sim.model.options import OnCores, Options
from carpool.sim.model.trace_job import TraceJob

OUT_OF_MEMORY = 1  # exit code of a job that was refused memory: Python's, after an exception


class LaneJobs:
    """Carries out the core's commands on modelled jobs."""

    def __init__(self, driver: Driver, ledger: Ledger, options: Options, devices: dict[DeviceId, int]) -> None:
        self._driver = driver
        self._ledger = ledger
        self._jobs: dict[JobId, SeatedJob] = {}
        every_us = options.telemetry_us
        self._telemetry = [ModelledTelemetry(driver, name, every_us) for name in devices] if every_us else []
        interference = options.interference if options.cores is None else OnCores(options.interference)
        self._devices = [
            ModelledDevice(interference, ledger, self._telemetry[number] if every_us else None)
            for number in range(len(devices))
        ]
        self._turns = TurnTaking(driver, ledger, hosts_of(options), self._devices, self._jobs, self._let_go)
        self._pausing = Pausing(driver, options, self._turns)
        self._options = options
        self._measured_after = options.settings.measured_after
        self._unsure = not options.declare_memory or bool(options.estimator)  # the declared memory may be wrong
        self._numbers = devices
        self._lanes: dict[int, ModelledDevice] = {}
        self.retry: Callable[[JobId], bool] = lambda number: False
        self._table: dict[type, Callable[[Any], None]] = {
            commands.StartJob: self._start,
            commands.OpenLane: self._open_lane,
            commands.ResizeLane: lambda command: self._lane_has(command.lane, command.size),
            commands.CloseLane: self._close_lane,
            commands.MoveJob: self._move,
            commands.GrantMemory: self._grant_memory,
            commands.DenyMemory: self._deny_memory,
            commands.GrantTurn: self._grant_turn,
            commands.PauseTurn: lambda command: self._pausing.request(self._jobs[command.job], command.forced),
            commands.NameSuccessor: self._name_successor,
            commands.RequestYield: self._request_yield,
            commands.WatchIdle: lambda command: self._turns.watch_idle(self._jobs[command.job], command.grace_us),
            commands.WithdrawYield: lambda command: self._turns.withdraw_yield(self._jobs[command.job]),
            commands.Offload: self._offload,
            # Commands about kept pages and engines, which a modelled job does not have.
            **dict.fromkeys((commands.PinStore, commands.DropStore, commands.StopEngine), lambda command: None),
            commands.RetryJob: self._again,
            commands.EndJob: self._end,
        }

    def begin(self) -> None:
        """Begin to report the devices' telemetry; the devices have been added."""
        for telemetry in self._telemetry:
            telemetry.begin()

    @property
    def devices(self) -> Sequence[ModelledDevice]:
        """The devices, in the order of their numbers."""
        return self._devices

    def _device(self, job: SeatedJob) -> ModelledDevice:
        return self._devices[job.device]

    @property
    def unfinished(self) -> Collection[JobId]:
        """The numbers of the jobs that have not ended."""
        return self._jobs.keys()

    def submitted(self, number: JobId, job: TraceJob, attempt: SimulatedAttempt) -> None:
        """Make a modelled job for a job that comes, for the first time or again."""
        result = self._ledger.result(number)
        self._jobs[number] = SeatedJob(number, result, attempt, self._options)

    def execute(self, command: Command) -> None:
        """Carry a command out."""
        self._table[type(command)](command)

    # The process

    def _start(self, command: commands.StartJob) -> None:
        job = self._jobs[command.job]
        job.device, job.lane = self._numbers[command.device], command.lane
        job.further = tuple(self._numbers[name] for name in command.further)
        self._driver.post(ProcessStarted(job.number))
        motion = job.motion
        ready = min(max(motion.startup_us, motion.position_us()), motion.end_us)
        self._turns.work_on_host(job, ready, self._attach)

    def _attach(self, job: SeatedJob, position_us: Micros) -> None:
        """Attach the process after its start-up on the host, if it is to compute."""
        motion = job.motion
        if position_us < motion.computed_us:
            if self._unsure or job.job.model:  # its first iterations are not measured
                job.sample_at = position_us + self._measured_after * motion.cycle_us // motion.lump
            self._turns.tell(job)
            self._device(job).joins(job, self._driver.now)
            self._driver.post(Attached(job.number))
        self._turns.back_from_host(job, position_us)

    def _end(self, command: commands.EndJob) -> None:
        job = self._jobs.pop(command.job)
        self._clear(job)
        died = command.outcome is Outcome.FAILED and not job.ran_out and command.code == job.attempt.code
        if died and self.retry(job.number):
            return
        self._ledger.ended(command, self._driver.now)

    def _again(self, command: commands.RetryJob) -> None:
        """Begin a new attempt: the work since the last checkpoint is lost, and the job will be placed anew."""
        job = self._jobs[command.job]
        self._clear(job)
        job.plan += 1
        job.result.attempts += 1
        job.result.recoveries += 1
        attempt = resumed(job.job, job.attempt, job.motion.position_us())
        self._jobs[command.job] = SeatedJob(command.job, job.result, attempt, self._options)

    def _clear(self, job: SeatedJob) -> None:
        """End an attempt: free its turn and its memory, and record its figures."""
        if job.holds:
            self._turns.leave_turn(job)
        if job.phase is not None:
            self._turns.leave_host(job)
        self._device(job).holds_memory(job.number, Memory(), self._driver.now)
        self._device(job).parts(job, self._driver.now)
        result = job.result
        result.service_us += job.held_us
        if job.ran_out:
            result.out_of_memory += 1
            result.lost_us += job.held_us
        if job.store.out_bytes:
            result.moved(job.store)

    # Turns

    def _grant_turn(self, command: commands.GrantTurn) -> None:
        job = self._jobs[command.job]
        if job.paused:
            self._pausing.resume(job)
        else:
            self._turns.grant(job)

    def _name_successor(self, command: commands.NameSuccessor) -> None:
        job = self._jobs[command.holder]
        if job.holds:
            job.successor = command.successor

    def _request_yield(self, command: commands.RequestYield) -> None:
        """Ask for the turn; a paused job ignores the request unless it must give its turn away at once."""
        job = self._jobs[command.job]
        if not job.paused:
            self._turns.request_yield(job, command.forced)
        elif command.forced:
            self._pausing.give_up(job)

    def _let_go(self, job: SeatedJob, cause: Cause) -> None:
        """Pause, or give way, at a point that the job has reached after being asked to, or watched."""
        if job.pause_asked:
            self._pausing.pause(job, cause)
        else:
            self._turns.give_way(job, cause)

    # Memory

    def _open_lane(self, command: commands.OpenLane) -> None:
        self._lanes[command.lane] = self._devices[self._numbers[command.device]]
        self._lane_has(command.lane, command.size)

    def _lane_has(self, lane: LaneId, size: int) -> None:
        self._lanes[lane].resize_lane(lane, size, self._driver.now)

    def _close_lane(self, command: commands.CloseLane) -> None:
        self._lane_has(command.lane, 0)
        del self._lanes[command.lane]

    def _move(self, command: commands.MoveJob) -> None:
        self._jobs[command.job].lane = command.lane

    def _grant_memory(self, command: commands.GrantMemory) -> None:
        job = self._jobs[command.job]
        job.limit = command.memory
        self._device(job).holds_memory(job.number, command.memory, self._driver.now)
        if command.answers is not None and command.answers is job.asked:
            job.asked = None
            self._turns.go_on(job)

    def _deny_memory(self, command: commands.DenyMemory) -> None:
        """End the job: its script sees an out-of-memory error."""
        job = self._jobs[command.job]
        if job.asked is command.memory_class:
            job.asked, job.ran_out = None, True
            self._turns.exit(job, OUT_OF_MEMORY, command.reason.text)

    # The host store

    def _offload(self, command: commands.Offload) -> None:
        job, now = self._jobs[command.job], self._driver.now
        if job.holds or job.paused:
            self._turns.stays(job)
            return
        job.leaves_us = now + job.store.leave_us(job.used)
        if job.leaves_us > now:
            self._driver.plan(job.leaves_us, self._left, job)
        else:
            self._left(job)

    def _left(self, job: SeatedJob) -> None:
        """Complete an offload, unless the job has ended or got a turn meanwhile."""
        now = self._driver.now
        if job.leaves_us != now or self._jobs.get(job.number) is not job:
            return
        job.leaves_us = None
        job.store.left(job.used)
        self._driver.post(Sampled(job.number, job.usage(now)))
        self._driver.post(Offloaded(job.number))
