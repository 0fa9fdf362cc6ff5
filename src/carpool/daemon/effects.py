"""Carrying out the core's commands: one small method per command, none of which waits."""

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
from carpool.daemon.jobs.table import JobRecord, JobTable, Seated
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


class Effects:
    """Carries out all of the core's commands.

    Commands for jobs that have just ended, or whose process has no seat any more, have no effect.
    """

    def __init__(self, *tables: Table) -> None:
        self._table = {kind: method for table in tables for kind, method in table.items()}

    def execute(self, command: commands.Command) -> None:
        """Carry out a command without waiting.  The loop logs its errors, and goes on with the next command."""
        self._table[type(command)](command)


def seated(jobs: JobTable, number: JobId) -> tuple[JobRecord, Seated] | None:
    """Return a live job with its seat; None: its process is not attached."""
    job = jobs.live.get(number)
    return None if job is None or job.seated is None else (job, job.seated)


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
            commands.Offload: self._offload,
            commands.PinStore: self._pin_store,
            commands.DropStore: self._drop_store,
            commands.PlaceWeights: self._place_weights,
            commands.DropWeights: self._drop_weights,
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

    def _offload(self, command: commands.Offload) -> None:
        if (known := seated(self._jobs, command.job)) is not None:
            self._memory.offloads.ask(known[0])

    def _pin_store(self, command: commands.PinStore) -> None:
        if (known := seated(self._jobs, command.job)) is not None:
            self._memory.copies.pin_ahead(known[0], command.size)

    def _drop_store(self, command: commands.DropStore) -> None:
        if (known := seated(self._jobs, command.job)) is not None:
            self._memory.offloads.drop_store(known[0])

    def _place_weights(self, command: commands.PlaceWeights) -> None:
        if (known := seated(self._jobs, command.job)) is not None:
            self._memory.weights.place(known[0], command)

    def _drop_weights(self, command: commands.DropWeights) -> None:
        self._memory.weights.drop(command)


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
            commands.DenyTurn: self._deny,
            commands.NameSuccessor: successors.name,
            commands.RequestYield: self._request_yield,
            commands.WatchIdle: self._watch_idle,
            commands.WithdrawYield: self._withdraw_yield,
            commands.PauseTurn: self._pause,
        }

    def _checkpoint_job(self, job_id: JobId) -> JobRecord | None:
        """Return the job if it is a checkpoint job, which has no seat."""
        job = self._jobs.live.get(job_id)
        return job if job is not None and job.by_checkpoint else None

    def _grant(self, command: commands.GrantTurn) -> None:
        if (job := self._checkpoint_job(command.job)) is not None:
            self._checkpointing.turn(job)
        if (known := seated(self._jobs, command.job)) is None:
            return
        job, seat = known
        if is_paused(seat.seat.snapshot()):
            self._watchlist.withdraw(job)
            self._pauses.end(job, seat)
            return
        self._seating.give_turn(command.lane, job.id)
        job.switches += 1
        self._granting.turn(job)

    def _deny(self, command: commands.DenyTurn) -> None:
        if (known := seated(self._jobs, command.job)) is not None:
            log.warning("job %d gets no turn: %s", command.job, command.reason.text, extra=caused_by(known[0].owner))
            answer = Placed.CHANGED if command.reason.code == "changed" else Placed.TOO_LARGE
            answer_demand(known[1], answer, known[1].seat.get("demand_seq"))

    def _request_yield(self, command: commands.RequestYield) -> None:
        if (job := self._checkpoint_job(command.job)) is not None:
            self._checkpointing.request_yield(job)
        if (known := seated(self._jobs, command.job)) is None:
            return
        job, seat = known
        how = Yield.NOW if command.forced else Yield.BOUNDARY
        if job.turn_due:
            job.yield_due = how
            return
        if command.forced and is_paused(seat.seat.snapshot()):
            self._pauses.end(job, seat, how)
        else:
            request_yield(seat.board, seat.seat, how)
        self._watchlist.revoke(job, how)

    def _watch_idle(self, command: commands.WatchIdle) -> None:
        if (known := seated(self._jobs, command.job)) is not None:
            watch_idle(known[1].board, known[1].seat, command.grace_us)

    def _withdraw_yield(self, command: commands.WithdrawYield) -> None:
        if (job := self._checkpoint_job(command.job)) is not None:
            self._checkpointing.withdraw_yield(job)
        if (known := seated(self._jobs, command.job)) is None:
            return
        job, seat = known
        job.yield_due = None
        paused = seat.seat.get("yield") == Yield.PAUSE  # a word that the daemon writes
        withdraw_yield(seat.seat)
        self._watchlist.withdraw(job)
        if paused:
            self._pauses.end(job, seat)

    def _pause(self, command: commands.PauseTurn) -> None:
        """Ask for a pause; whether it is forced makes no difference (`carpool.daemon.seats.services`)."""
        if (known := seated(self._jobs, command.job)) is not None:
            self._pauses.ask(known[0])
