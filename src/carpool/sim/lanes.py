"""Modelled jobs in lanes: they ask for memory, wait for turns, compute side by side with other lanes, and give way.

What a job does is what the runtime does (`docs/internals/contract.md`): it keeps its turn until its seat asks for it,
gives way at the end of an iteration, or earlier if it is off the device for longer than the grace while others wait,
and wakes the successor named in its seat itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from carpool.core import commands
from carpool.core.commands import Command
from carpool.core.events import (
    Attached,
    MemoryRequested,
    Offloaded,
    ProcessExited,
    ProcessStarted,
    Sampled,
    TurnPassed,
    TurnReleased,
    TurnWanted,
)
from carpool.core.model import Cause, DeviceId, JobId, Memory, Micros, Outcome
from carpool.sim.clock import Driver
from carpool.sim.device import ModelledDevice
from carpool.sim.job import TraceJob
from carpool.sim.ledger import Ledger
from carpool.sim.options import Options
from carpool.sim.seated import Doing, SeatedJob
from carpool.sim.specs import Attempt

OUT_OF_MEMORY = 12  # exit code of a job that was refused memory


class LaneJobs:
    """Carries out the core's commands on modelled jobs."""

    def __init__(self, driver: Driver, ledger: Ledger, options: Options, devices: dict[DeviceId, int]) -> None:
        self._driver = driver
        self._ledger = ledger
        self._switch_us = options.switch_cost_us
        self._resolution_us = options.resolution_us
        self._grace_us = options.settings.grace_us
        self._measured_after = options.settings.measured_after
        self._blind = not options.declare_memory
        self._numbers = devices
        self._devices = [ModelledDevice(options.interference, ledger, number) for number in devices.values()]
        self._jobs: dict[JobId, SeatedJob] = {}
        self._lanes: dict[int, ModelledDevice] = {}
        self.retry: Callable[[JobId], bool] = lambda number: False
        self._table: dict[type, Callable[[Any], None]] = {
            commands.StartJob: self._start,
            commands.OpenLane: self._open_lane,
            commands.ResizeLane: self._resize_lane,
            commands.CloseLane: self._close_lane,
            commands.MoveJob: self._move,
            commands.GrantMemory: self._grant_memory,
            commands.DenyMemory: self._deny_memory,
            commands.GrantTurn: self._grant_turn,
            commands.NameSuccessor: self._name_successor,
            commands.RequestYield: self._request_yield,
            commands.WithdrawYield: self._withdraw_yield,
            commands.Offload: self._offload,
            commands.EndJob: self._end,
        }

    @property
    def unfinished(self) -> Collection[JobId]:
        return self._jobs.keys()

    def submitted(self, number: JobId, job: TraceJob, attempt: Attempt) -> None:
        """A job comes, for the first time or again."""
        self._jobs[number] = SeatedJob(number, self._ledger.result(number), attempt, self._resolution_us)

    def execute(self, command: Command) -> None:
        self._table[type(command)](command)

    def _device(self, job: SeatedJob) -> ModelledDevice:
        return self._devices[job.device]

    # The process

    def _start(self, command: commands.StartJob) -> None:
        job = self._jobs[command.job]
        job.device, job.lane = self._numbers[command.device], command.lane
        self._driver.post(ProcessStarted(job.number))
        motion = job.motion
        ready = min(max(motion.startup_us, motion.position_us()), motion.end_us)
        begins = self._driver.now + ready - motion.position_us()
        self._driver.plan(begins, self._attach, job, ready)

    def _attach(self, job: SeatedJob, position_us: Micros) -> None:
        """Start-up on the host is over."""
        motion = job.motion
        motion.skip_to(position_us)
        if position_us >= motion.end_us:
            self._exit(job, job.attempt.code)
            return
        if self._blind:
            job.sample_at = motion.position_us() + self._measured_after * motion.cycle_us // motion.lump
        self._driver.post(Attached(job.number))
        self._go_on(job)

    def _exit(self, job: SeatedJob, code: int) -> None:
        self._driver.post(ProcessExited(job.number, code))

    def _end(self, command: commands.EndJob) -> None:
        job = self._jobs.pop(command.job)
        if job.holds:
            self._leave_turn(job)
        self._device(job).holds_memory(job, Memory(), self._driver.now)
        result = job.result
        result.service_us += job.held_us
        if command.outcome is Outcome.FAILED and command.code == job.attempt.code and self.retry(job.number):
            return
        self._ledger.ended(command, self._driver.now)

    # Memory

    def _open_lane(self, command: commands.OpenLane) -> None:
        device = self._lanes[command.lane] = self._devices[self._numbers[command.device]]
        device.resize_lane(command.lane, command.size, self._driver.now)

    def _resize_lane(self, command: commands.ResizeLane) -> None:
        self._lanes[command.lane].resize_lane(command.lane, command.size, self._driver.now)

    def _close_lane(self, command: commands.CloseLane) -> None:
        self._lanes.pop(command.lane).resize_lane(command.lane, 0, self._driver.now)

    def _move(self, command: commands.MoveJob) -> None:
        self._jobs[command.job].lane = command.lane

    def _grant_memory(self, command: commands.GrantMemory) -> None:
        job = self._jobs[command.job]
        job.limit = command.memory
        self._device(job).holds_memory(job, command.memory, self._driver.now)
        if command.memory.total:
            job.offloaded = False
        if command.answers is not None and command.answers is job.asked:
            job.asked = None
            self._go_on(job)

    def _deny_memory(self, command: commands.DenyMemory) -> None:
        """The script sees an out-of-memory error, and ends."""
        job = self._jobs[command.job]
        if job.asked is command.memory_class:
            job.asked = None
            self._exit(job, OUT_OF_MEMORY)

    def _offload(self, command: commands.Offload) -> None:
        job = self._jobs[command.job]
        job.offloaded = not job.holds
        self._driver.post(Offloaded(job.number))

    def _go_on(self, job: SeatedJob) -> None:
        """The script runs on, up to where it lacks something."""
        need = job.need()
        if need is not None and not job.offloaded:
            job.doing, job.asked = Doing.MEMORY, need[0]
            self._driver.post(MemoryRequested(job.number, *need))
        elif not job.holds:
            job.doing = Doing.TURN
            self._driver.post(TurnWanted(job.number))
        else:
            self._compute(job)

    # Turns

    def _grant_turn(self, command: commands.GrantTurn) -> None:
        job = self._jobs[command.job]
        self._take_turn(job)
        self._run(job, job.turns)

    def _take_turn(self, job: SeatedJob) -> None:
        """Its seat says so: from now on it may be told who comes next, and be asked to yield."""
        now = self._driver.now
        job.holds, job.began_us, job.yield_asked, job.successor = True, now, None, None
        job.start_us = job.motion.position_us()
        job.turns += 1
        if job.result.started_us is None:
            job.result.started_us = now

    def _run(self, job: SeatedJob, turn: int) -> None:
        """It wakes up, unless it has lost that turn already."""
        if not job.holds or job.turns != turn:
            return
        if turn > 1 and self._switch_us:
            job.doing = Doing.SWITCHING
            self._plan(job, self._driver.now + self._switch_us, self._go_on)
        else:
            self._go_on(job)

    def _compute(self, job: SeatedJob) -> None:
        job.doing = Doing.COMPUTING
        job.motion.begin(self._driver.now)
        self._speeds_changed(job, self._device(job).enter(job, self._driver.now))

    def _speeds_changed(self, job: SeatedJob | None, others: list[SeatedJob]) -> None:
        for other in others:
            if other is not job:
                self._plan_next(other)
        if job is not None:
            self._plan_next(job)

    def _leave_turn(self, job: SeatedJob) -> None:
        """The job does not compute any more, and its turn is somebody else's."""
        now = self._driver.now
        job.plan += 1
        if job.doing is Doing.COMPUTING:
            job.motion.stop(now)
            self._speeds_changed(None, self._device(job).leave(job, now))
        self._ledger.span(job.number, job.device, job.lane, job.began_us, now)
        job.held_us += now - job.began_us
        job.holds = False

    def _give_way(self, job: SeatedJob, cause: Cause) -> None:
        """Pass the turn to the successor in the seat, or back; then go on as far as possible without it."""
        if job.yield_asked is not None:
            job.result.preemptions += 1
        heir = self._jobs.get(job.successor) if job.successor is not None else None
        was = job.doing
        self._leave_turn(job)
        usage = job.usage(self._driver.now, self._switch_us)
        if heir is None:
            self._driver.post(TurnReleased(job.number, cause, usage))
        else:
            self._take_turn(heir)
            turn = heir.turns
            self._driver.post(TurnPassed(job.number, heir.number, cause, usage))
            self._run(heir, turn)
        if cause is Cause.EARLY:
            self._finish_on_host(job)
        elif was is not Doing.MEMORY:
            self._go_on(job)

    def _finish_on_host(self, job: SeatedJob) -> None:
        """The rest of the iteration needs no device."""
        job.doing = Doing.HOST
        motion = job.motion
        end = min(motion.lump_end_after(motion.position_us()), motion.end_us)
        self._plan(job, self._driver.now + end - motion.position_us(), self._back_from_host, end)

    def _back_from_host(self, job: SeatedJob, position_us: Micros) -> None:
        job.motion.skip_to(position_us)
        if position_us >= job.motion.end_us:
            self._exit(job, job.attempt.code)
        else:
            self._go_on(job)

    # The seat

    def _name_successor(self, command: commands.NameSuccessor) -> None:
        job = self._jobs[command.holder]
        if not job.holds:
            return
        job.successor = command.successor
        if job.doing is Doing.COMPUTING and self._idles(job):
            self._plan_next(job)

    def _idles(self, job: SeatedJob) -> bool:
        """Whether the job is off the device for long enough to lose its turn to others."""
        return job.motion.host_us > self._grace_us * job.motion.lump

    def _request_yield(self, command: commands.RequestYield) -> None:
        job = self._jobs[command.job]
        if not job.holds:
            return
        job.yield_asked = Cause.FORCED if command.forced else Cause.BOUNDARY
        if command.forced:
            self._give_way(job, Cause.FORCED)
        elif job.doing is Doing.COMPUTING:
            self._plan_next(job)

    def _withdraw_yield(self, command: commands.WithdrawYield) -> None:
        job = self._jobs[command.job]
        job.yield_asked = None
        if job.doing is Doing.COMPUTING:
            self._plan_next(job)

    # What a computing job comes to next

    def _plan(self, job: SeatedJob, when: Micros, call: Callable[..., None], *arguments: Any) -> None:
        """Instead of what was planned for the job before."""
        job.plan += 1
        self._driver.plan(when, self._if_meant, job, job.plan, call, arguments)

    @staticmethod
    def _if_meant(job: SeatedJob, plan: int, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if job.plan == plan:
            call(job, *arguments)

    def _plan_next(self, job: SeatedJob) -> None:
        motion, now = job.motion, self._driver.now
        motion.advance(now)
        ends = motion.when(motion.end_us)
        places: list[tuple[Micros, int, Callable[..., None], tuple[Any, ...]]] = [(ends, 0, self._done, ())]
        if job.sample_at is not None:
            places.append((motion.when(job.sample_at), 1, self._sampled, ()))
        idles = self._idles(job)
        if idles and (job.successor is not None or job.yield_asked is not None):
            off = max(motion.device_end() + self._grace_us * motion.lump, motion.position_us())
            places.append((motion.when(off), 2, self._give_way, (Cause.EARLY,)))
        if job.yield_asked is not None:
            boundary = motion.boundary_after(max(motion.position_us() - 1, job.start_us))
            if not idles or boundary < motion.device_end():
                places.append((motion.when(boundary), 3, self._give_way, (Cause.BOUNDARY,)))
        when, _, call, arguments = min(places, key=lambda place: place[:2])
        self._plan(job, when, call, *arguments)

    def _done(self, job: SeatedJob) -> None:
        self._exit(job, job.attempt.code)

    def _sampled(self, job: SeatedJob) -> None:
        job.sample_at = None
        self._driver.post(Sampled(job.number, job.usage(self._driver.now, self._switch_us)))
        self._plan_next(job)
