"""Carrying out the core's commands: one small method per command, none of which waits."""

from __future__ import annotations

import logging
from collections.abc import Callable

from carpool.core import commands
from carpool.core.model import JobId, JobPhase, LaneId, MemoryClass
from carpool.daemon.channels.router import Channels
from carpool.daemon.checkpoint.driver import Checkpointing
from carpool.daemon.jobs.table import Job, JobTable
from carpool.daemon.journal.records import Store
from carpool.daemon.seats.allocator import Seating
from carpool.daemon.seats.demands import answer_demand
from carpool.daemon.seats.kept_fds import LANE
from carpool.daemon.seats.pauses import is_paused
from carpool.daemon.seats.record import answer_growth, request_yield, watch_idle, withdraw_yield
from carpool.daemon.shims.retries import Retries
from carpool.daemon.shims.supervisor import Processes
from carpool.daemon.system.clock import wall_us
from carpool.devices.base import Device, in_extents, single
from carpool.protocol.seat import Grow, Packet, PacketType, Placed, Yield

log = logging.getLogger(__name__)


class Effects:
    """Commands for jobs that have just ended, or whose process is not seated any more, have nothing left to do.

    ``watch``: what to do about a job that may not answer.
    """

    def __init__(
        self, jobs: JobTable, processes: Processes, channels: Channels, seating: Seating, store: Store
    ) -> None:
        self.watch: Callable[[Job], None]
        self.checkpointing: Checkpointing
        self.retries: Retries
        self.job_ended: Callable[[], None] = lambda: None  # after it has been recorded
        self._jobs = jobs
        self._processes = processes
        self._channels = channels
        self._seating = seating
        self._store = store
        self._named: dict[LaneId, commands.NameSuccessor] = {}  # what was said last
        channels.granting.changed = self._name_again
        self._table: dict[type, Callable[..., None]] = {
            commands.StartJob: self._start_job,
            commands.SignalJob: self._signal_job,
            commands.OpenLane: self._open_lane,
            commands.ResizeLane: self._resize_lane,
            commands.CloseLane: self._close_lane,
            commands.MoveJob: self._move_job,
            commands.GrantMemory: self._grant_memory,
            commands.DenyMemory: self._deny_memory,
            commands.GrantTurn: self._grant_turn,
            commands.PauseTurn: self._pause_turn,
            commands.PlaceWeights: self._place_weights,
            commands.DropWeights: self._drop_weights,
            commands.DenyTurn: self._deny_turn,
            commands.NameSuccessor: self._name_successor,
            commands.RequestYield: self._request_yield,
            commands.WatchIdle: self._watch_idle,
            commands.WithdrawYield: self._withdraw_yield,
            commands.Offload: self._offload,
            commands.DropStore: self._drop_store,
            commands.RetryJob: self._retry_job,
            commands.EndJob: self._end_job,
        }

    def execute(self, command: commands.Command) -> None:
        self._table[type(command)](command)

    def _seated(self, job_id: JobId) -> Job | None:
        job = self._jobs.live.get(job_id)
        return job if job is not None and job.seated is not None else None

    # Processes

    def _start_job(self, command: commands.StartJob) -> None:
        job = self._jobs.live[command.job]
        job.phase, job.device, job.lane = JobPhase.STARTING, command.device, command.lane
        job.further = command.further
        self._store.placed(job, command.decision)
        if job.guest:
            self.checkpointing.start(job)
        else:
            self._processes.start(job)

    def _signal_job(self, command: commands.SignalJob) -> None:
        job = self._jobs.live.get(command.job)
        if job is not None and job.guest:
            self.checkpointing.signal(job, command.signal)
        elif job is not None:
            self._processes.signal(job, command.signal)

    def _retry_job(self, command: commands.RetryJob) -> None:
        job = self._jobs.live[command.job]
        if job.guest:
            self.checkpointing.forget(job)
        self._seating.unseat(job)
        self._channels.companions.forget(job)
        self._channels.close(job.id)
        again = job.again(command.past, command.estimate, command.code, command.signal)
        self._jobs.live[job.id] = again
        self.retries.follow(again)

    def _end_job(self, command: commands.EndJob) -> None:
        job = self._jobs.live[command.job]
        if job.guest:
            self.checkpointing.forget(job)
        job.phase, job.outcome, job.reason = JobPhase.ENDED, command.outcome, job.fault or command.reason
        job.exit_code, job.signal, job.ended_us = command.code, command.signal, wall_us()
        self._seating.unseat(job)
        self._channels.companions.forget(job)
        self._channels.close(job.id)
        self._processes.forget(job.id, command.reason.text if command.reason else f"the job was {command.outcome}")
        self._store.ended(job)
        self._jobs.end(job)
        self.job_ended()

    # Lanes

    def _device(self, lane: LaneId) -> Device:
        return self._seating.devices[self._seating.lane_device[lane]]

    def _open_lane(self, command: commands.OpenLane) -> None:
        self._seating.lane_device[command.lane] = command.device
        device = self._seating.devices[command.device]
        device.open_lane(command.lane, 0 if in_extents(device) else command.size)

    def _resize_lane(self, command: commands.ResizeLane) -> None:
        """Lanes in extents grow when somebody is granted more of them."""
        device = self._device(command.lane)
        if not in_extents(device):
            device.resize_lane(command.lane, command.size)
        elif command.size < device.lane_size(command.lane):
            device.resize_lane(command.lane, command.size)
            self._channels.supply.lane_was_cut(command.lane, device.lane_size(command.lane))

    def _close_lane(self, command: commands.CloseLane) -> None:
        self._channels.supply.lane_was_cut(command.lane, 0)
        self._device(command.lane).close_lane(command.lane)
        del self._seating.lane_device[command.lane]
        self._seating.holder.pop(command.lane, None)
        self._seating.giver.pop(command.lane, None)
        self._named.pop(command.lane, None)

    def _move_job(self, command: commands.MoveJob) -> None:
        job = self._jobs.live[command.job]
        old, job.lane = job.lane, command.lane
        if job.seated is None or old == command.lane:
            return
        if job.seated.extents:
            self._channels.granting.memory(job, answers=False)
            return
        fd = single(self._device(command.lane).lane_files(command.lane))
        self._processes.keep(job.id, {f"{LANE}:{command.lane}": fd}, job.seated.pid)
        job.seated.seat.set("lane", command.lane)  # before the packet: the job waits for it where they differ
        self._channels.send(job.id, Packet(PacketType.LANE, a=command.lane), [fd])
        job.seated.board.ring(job.seated.seat)
        self._processes.drop(job.id, [f"{LANE}:{old}"])

    # Memory

    def _grant_memory(self, command: commands.GrantMemory) -> None:
        job = self._jobs.live[command.job]
        job.granted = command.memory
        if job.seated is not None:
            self._channels.granting.memory(job, answers=command.answers is not None)

    def _deny_memory(self, command: commands.DenyMemory) -> None:
        job = self._jobs.live.get(command.job)
        if job is not None:
            log.debug("job %d is refused %s memory: %s", job.id, MemoryClass(command.memory_class), command.reason.text)
            if job.seated is not None:
                answer_growth(job.seated.board, job.seated.seat, Grow.DENIED, job.grow_seq)

    def _offload(self, command: commands.Offload) -> None:
        job = self._seated(command.job)
        if job is not None:
            self._channels.offloads.ask(job)

    def _drop_store(self, command: commands.DropStore) -> None:
        job = self._seated(command.job)
        if job is not None:
            self._channels.offloads.drop_store(job)

    # Turns

    def _guest(self, job_id: JobId) -> Job | None:
        """A job of the checkpoint engine has no seat."""
        job = self._jobs.live.get(job_id)
        return job if job is not None and job.guest else None

    def _grant_turn(self, command: commands.GrantTurn) -> None:
        if (guest := self._guest(command.job)) is not None:
            self.checkpointing.turn(guest)
        job = self._seated(command.job)
        if job is not None and job.seated is not None and is_paused(job.seated.seat):
            self._channels.pauses.end(job.seated)
        elif job is not None:
            self._seating.holder[command.lane] = job.id
            self._seating.giver.pop(command.lane, None)
            job.switches += 1
            self._channels.granting.turn(job)

    def _name_successor(self, command: commands.NameSuccessor) -> None:
        self._named[command.lane] = command
        holder = self._seated(command.holder)
        if holder is None or holder.seated is None:
            return
        successor = self._seated(command.successor) if command.successor is not None else None
        slot = 0
        # Boards differ only after a restart; then the holder gives its turn back and the daemon passes it on.
        if successor is not None and successor.seated is not None and self._may_compute(successor):
            same_board = successor.seated.board is holder.seated.board
            slot = successor.seated.seat.slot + 1 if same_board else 0
        holder.seated.seat.set("successor", slot)

    def _may_compute(self, job: Job) -> bool:
        """It has all that it was granted, and nobody is moving its memory."""
        return job.bank is not None and not job.offloading and not self._channels.granting.waits(job)

    def _name_again(self, job: Job) -> None:
        """Whether it may compute has changed: it is named, or not any more, where it is the next."""
        named = self._named.get(job.lane or 0)
        if named is not None and named.successor == job.id and self._seating.holder.get(named.lane) == named.holder:
            self._name_successor(named)

    def _request_yield(self, command: commands.RequestYield) -> None:
        if (guest := self._guest(command.job)) is not None:
            self.checkpointing.request_yield(guest)
        job = self._seated(command.job)
        if job is not None and job.seated is not None:
            how = Yield.NOW if command.forced else Yield.BOUNDARY
            job.yield_due = job.turn_due
            if command.forced and is_paused(job.seated.seat):
                self._channels.pauses.end(job.seated, Yield.NOW)
            else:
                request_yield(job.seated.board, job.seated.seat, how)
            if command.forced:
                self.watch(job)

    def _watch_idle(self, command: commands.WatchIdle) -> None:
        job = self._seated(command.job)
        if job is not None and job.seated is not None:
            watch_idle(job.seated.board, job.seated.seat, command.grace_us)

    def _withdraw_yield(self, command: commands.WithdrawYield) -> None:
        if (guest := self._guest(command.job)) is not None:
            self.checkpointing.withdraw_yield(guest)
        job = self._seated(command.job)
        if job is not None and job.seated is not None:
            job.yield_due = False
            paused = job.seated.seat.get("yield") == Yield.PAUSE
            withdraw_yield(job.seated.seat)
            if paused:
                self._channels.pauses.end(job.seated)

    # Services

    def _pause_turn(self, command: commands.PauseTurn) -> None:
        job = self._seated(command.job)
        if job is not None and self._channels.pauses.ask(job):
            self.watch(job)

    def _place_weights(self, command: commands.PlaceWeights) -> None:
        job = self._seated(command.job)
        if job is not None:
            self._channels.weights.place(job, command)

    def _drop_weights(self, command: commands.DropWeights) -> None:
        self._channels.weights.drop(command)

    def _deny_turn(self, command: commands.DenyTurn) -> None:
        job = self._seated(command.job)
        if job is not None:
            log.warning("job %d gets no turn: %s", job.id, command.reason.text)
            answer_demand(job, Placed.CHANGED if command.reason.code == "changed" else Placed.TOO_LARGE)
