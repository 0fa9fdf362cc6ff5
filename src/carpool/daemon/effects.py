"""Carrying out the core's commands: one small method per command, none of which waits.

Commands for jobs that have just ended, or whose process has no seat any more, have no effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from carpool.core import commands
from carpool.core.model import JobId, JobPhase, LaneId, MemoryClass
from carpool.daemon.channels.connections import JobConnections
from carpool.daemon.checkpoint.driver import Checkpointing
from carpool.daemon.jobs.info import last_info
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.memory.parts import MemoryParts
from carpool.daemon.seats.allocator import SeatAllocator
from carpool.daemon.seats.kept_fds import LANE
from carpool.daemon.seats.record import answer_growth, request_yield, watch_idle, withdraw_yield
from carpool.daemon.seats.services import TurnPauses, answer_demand, is_paused
from carpool.daemon.seats.turns import Successors
from carpool.daemon.shims.durable_steps import RecordedSignals, Retries
from carpool.daemon.shims.shim_table import ShimParts
from carpool.daemon.shims.supervisor import Processes
from carpool.daemon.system.log_limit import caused_by
from carpool.devices.base import DeviceBackend, DeviceError
from carpool.protocol.seat import Grow, Packet, PacketType, Placed, Yield

log = logging.getLogger(__name__)
RETRY_S = 0.5
Table = Mapping[type, Callable[[Any], None]]  # the method for each kind of command


def seated(jobs: JobTable, number: JobId) -> JobRecord | None:
    """Return a live job with a seat; None: its process is not attached."""
    job = jobs.live.get(number)
    return None if job is None or job.seated is None else job


def if_seated(jobs: JobTable, work: Callable[[JobRecord, Any], object]) -> Callable[[Any], None]:
    """Return the method for commands that do nothing for a job whose process is not attached."""

    def carry_out(command: Any) -> None:
        if (job := seated(jobs, command.job)) is not None:
            work(job, command)

    return carry_out


class ProcessEffects:
    """Starting jobs, and what follows from their ends.  ``job_ended`` is called when an end has been recorded."""

    def __init__(
        self,
        parts: ShimParts,
        store: JournalStore,
        processes: Processes,
        retries: Retries,
        checkpointing: Checkpointing,
        job_ended: Callable[[], None],
    ) -> None:
        self._jobs = parts.jobs
        self._store = store
        self._channels = parts.channels
        self._hooks = parts.hooks
        self._processes = processes
        self._retries = retries
        self._checkpointing = checkpointing
        self._job_ended = job_ended
        self._signals = RecordedSignals(parts.jobs, store, self._send_signal)
        self.table: Table = {
            commands.StartJob: self._start,
            commands.SignalJob: self._signal,
            commands.TimeOut: self._time_out,
            commands.RetryJob: self._retry,
            commands.EndJob: self._end,
            **self._hooks.commands(self._signals),
        }

    def _start(self, command: commands.StartJob) -> None:
        job = self._jobs.live[command.job]
        job.phase, job.device, job.lane = JobPhase.STARTING, command.device, command.lane
        job.other_devices = command.further
        self._store.placed(job, command.decision)
        if job.by_checkpoint:
            self._checkpointing.start(job)
        else:
            self._processes.start(job)

    def _signal(self, command: commands.SignalJob) -> None:
        job = self._jobs.live.get(command.job)
        if job is not None:
            self._signals.send(job, command.signal)

    def _send_signal(self, job: JobRecord, number: int) -> None:
        (self._checkpointing if job.by_checkpoint else self._processes).signal(job, number)

    def _time_out(self, command: commands.TimeOut) -> None:
        job = self._jobs.live[command.job]
        job.mark_stopping()
        job.control = msgspec.structs.replace(job.control, timed_out=command.text)
        self._signals.record(job)

    def _retry(self, command: commands.RetryJob) -> None:
        job = self._jobs.live[command.job]
        self._release(job)
        self._jobs.now_us()  # adjusts the times of the attempt that is over
        again = job.again(command.past, command.estimate, command.code, command.signal)
        self._jobs.live[job.id] = again
        if again.control != job.control or job.suspending:
            self._store.note_control(again)
        if job.suspending:
            self._store.ended_by_suspend(job)
        self._retries.follow(again)

    def _end(self, command: commands.EndJob) -> None:
        job = self._jobs.live[command.job]
        job.phase, job.outcome, job.reason = JobPhase.ENDED, command.outcome, job.fault or command.reason
        job.exit_code, job.signal, job.ended_us = command.code, command.signal, self._jobs.now_us()
        self._release(job)
        self._processes.forget(
            job.id, command.reason.text if command.reason else f"the job was {command.outcome.words}"
        )
        self._hooks.ended(job)
        self._store.ended(job)
        self._jobs.end(job, last_info(job))
        self._job_ended()

    def _release(self, job: JobRecord) -> None:
        """Release whatever the job had of its device, as a checkpoint job, too."""
        if job.by_checkpoint:
            self._checkpointing.forget(job)
        self._channels.release(job)


class LaneEffects:
    """Lanes, and the jobs that move between them."""

    def __init__(
        self, jobs: JobTable, seating: SeatAllocator, lines: JobConnections, memory: MemoryParts, successors: Successors
    ) -> None:
        self._jobs = jobs
        self._seating = seating
        self._lines = lines
        self._granting = memory.granting
        self._supply = memory.supply
        self._successors = successors
        self._owed: dict[LaneId, int] = {}  # sizes of lanes that could not be opened yet
        self.table: Table = {
            commands.OpenLane: self._open,
            commands.ResizeLane: self._resize,
            commands.CloseLane: self._close,
            commands.MoveJob: self._move,
        }

    def _device(self, lane: LaneId) -> DeviceBackend:
        return self._seating.devices[self._seating.lane_device[lane]]

    def _open(self, command: commands.OpenLane) -> None:
        self._seating.lane_device[command.lane], self._seating.lane_owner[command.lane] = command.device, command.owner
        self._owed[command.lane] = command.size
        self._open_owed(command.lane)

    def _open_owed(self, lane: LaneId) -> None:
        """Open a lane, or try again later: the core counts on the lane, and its jobs wait for their seats meanwhile."""
        if lane not in self._owed:
            return
        try:
            self._seating.layouts[self._seating.lane_device[lane]].open_lane(lane, self._owed[lane])
            del self._owed[lane]
        except (DeviceError, OSError) as error:
            log.error("lane %d cannot be opened yet: %s", lane, error)
            asyncio.get_running_loop().call_later(RETRY_S, self._open_owed, lane)

    def _resize(self, command: commands.ResizeLane) -> None:
        if command.lane in self._owed:
            self._owed[command.lane] = command.size
            return
        layout = self._seating.layouts[self._seating.lane_device[command.lane]]
        end = layout.resize_lane(command.lane, command.size)
        if end is not None:
            self._supply.lane_was_cut(command.lane, end)

    def _close(self, command: commands.CloseLane) -> None:
        self._supply.lane_was_cut(command.lane, 0)
        if self._owed.pop(command.lane, None) is None:
            self._device(command.lane).close_lane(command.lane)
        self._seating.forget_lane(command.lane)
        self._successors.forget(command.lane)

    def _move(self, command: commands.MoveJob) -> None:
        job = self._jobs.live[command.job]
        old, job.lane = job.lane, command.lane
        if job.seated is None or old == command.lane:
            return
        if job.seated.extents:
            self._granting.memory(job, answers=False)
            return
        memory = self._seating.lane_memory(command.lane)
        self._seating.shims.keep(job.id, {f"{LANE}:{command.lane}": memory}, job.seated.pid)
        # Before the packet: where seat and mapped lane differ, the job waits for the packet.
        self._seating.tell_lane(job, job.seated.seat, command.lane)
        self._lines.send(job.id, Packet(PacketType.LANE, a=command.lane), [memory])
        job.seated.notify()
        self._seating.shims.drop(job.id, [f"{LANE}:{old}"])


def _held_by_others(jobs: JobTable, job: JobRecord) -> int:
    """Return the bytes that other jobs of the job's device have been granted; the job's own lane does not count."""
    others = [other for other in jobs.live.values() if other.device == job.device and other is not job]
    lanes: dict[LaneId, int] = {}
    for other in others:
        if other.lane is not None and other.lane != job.lane:
            lanes[other.lane] = max(lanes.get(other.lane, 0), other.granted.ephemeral)
    return sum(other.granted.persistent for other in others) + sum(lanes.values())


class MemoryEffects:
    """Grants, offloads, and the weights of services."""

    def __init__(self, jobs: JobTable, memory: MemoryParts) -> None:
        self._jobs = jobs
        self._memory = memory
        self.table: Table = {
            commands.GrantMemory: self._grant,
            commands.DenyMemory: self._deny,
            commands.Offload: if_seated(jobs, lambda job, _: memory.offloads.ask(job)),
            commands.PinStore: if_seated(jobs, lambda job, command: memory.copies.pin_ahead(job, command.size)),
            commands.DropStore: if_seated(jobs, lambda job, _: memory.offloads.drop_store(job)),
            commands.PlaceWeights: if_seated(jobs, memory.weights.place),
            commands.DropWeights: memory.weights.drop,
        }

    def _grant(self, command: commands.GrantMemory) -> None:
        job = self._jobs.live[command.job]
        job.granted = command.memory
        if job.seated is not None:
            self._memory.granting.memory(job, answers=command.answers is not None)

    def _deny(self, command: commands.DenyMemory) -> None:
        job = self._jobs.live.get(command.job)
        if job is not None:
            log.debug("job %d is refused %s memory: %s", job.id, MemoryClass(command.memory_class), command.reason.text)
            if job.seated is not None:
                job.seated.seat.set("others", _held_by_others(self._jobs, job))
                answer_growth(job.seated.board, job.seated.seat, Grow.DENIED, job.grow_seq)


class TurnEffects:
    """Turns of jobs with seats, and of checkpoint jobs, which have none."""

    def __init__(
        self,
        jobs: JobTable,
        seating: SeatAllocator,
        pauses: TurnPauses,
        memory: MemoryParts,
        successors: Successors,
        checkpointing: Checkpointing,
        watchlist: Watchlist,
    ) -> None:
        self._jobs = jobs
        self._seating = seating
        self._pauses = pauses
        self._granting = memory.granting
        self._checkpointing = checkpointing
        self._watchlist = watchlist
        self.table: Table = {
            commands.GrantTurn: self._grant,
            commands.DenyTurn: if_seated(jobs, _deny_turn),
            commands.NameSuccessor: successors.name,
            commands.RequestYield: self._request_yield,
            commands.WatchIdle: if_seated(jobs, _watch_idle),
            commands.WithdrawYield: self._withdraw_yield,
            commands.PauseTurn: if_seated(jobs, lambda job, _: pauses.ask(job)),  # forced or not makes no difference
        }

    def _checkpoint_job(self, job_id: JobId) -> JobRecord | None:
        """Return the job if it is a checkpoint job, which has no seat."""
        job = self._jobs.live.get(job_id)
        return job if job is not None and job.by_checkpoint else None

    def _grant(self, command: commands.GrantTurn) -> None:
        if (job := self._checkpoint_job(command.job)) is not None:
            self._checkpointing.turn(job)
        if (job := seated(self._jobs, command.job)) is None:
            return
        seat = job.attached
        if is_paused(seat.seat.snapshot()):
            self._watchlist.withdraw(job)
            self._pauses.end(job, seat)
            return
        self._seating.give_turn(command.lane, job.id)
        job.switches += 1
        self._granting.turn(job)

    def _request_yield(self, command: commands.RequestYield) -> None:
        if (job := self._checkpoint_job(command.job)) is not None:
            self._checkpointing.request_yield(job)
        if (job := seated(self._jobs, command.job)) is None:
            return
        seat = job.attached
        how = Yield.NOW if command.forced else Yield.BOUNDARY
        if job.turn_due:
            job.yield_due = how
            return
        if command.forced and is_paused(seat.seat.snapshot()):
            self._pauses.end(job, seat, how)
        else:
            request_yield(seat.board, seat.seat, how)
        self._watchlist.revoke(job, how)

    def _withdraw_yield(self, command: commands.WithdrawYield) -> None:
        if (job := self._checkpoint_job(command.job)) is not None:
            self._checkpointing.withdraw_yield(job)
        if (job := seated(self._jobs, command.job)) is None:
            return
        seat = job.attached
        job.yield_due = None
        paused = seat.seat.get("yield") == Yield.PAUSE  # a word that the daemon writes
        withdraw_yield(seat.seat)
        self._watchlist.withdraw(job)
        if paused:
            self._pauses.end(job, seat)


def _deny_turn(job: JobRecord, command: commands.DenyTurn) -> None:
    log.warning("job %d gets no turn: %s", job.id, command.reason.text, extra=caused_by(job.owner))
    answer = Placed.CHANGED if command.reason.code == "changed" else Placed.TOO_LARGE
    answer_demand(job.attached, answer, job.attached.seat.get("demand_seq"))


def _watch_idle(job: JobRecord, command: commands.WatchIdle) -> None:
    watch_idle(job.attached.board, job.attached.seat, command.grace_us)
