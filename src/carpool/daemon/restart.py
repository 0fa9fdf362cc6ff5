"""After a restart: read the journal, wait for the shims that live, and tell the core the present state.

The present state counts, not what was written last: a lock that is held means a shim that will register within moments
and bring everything it kept; a free lock means that the job has ended (``exit.json``), was lost, or has never been
started.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Container

import msgspec

from carpool.core.events import (
    Adopted,
    CancelRequested,
    RequeueRequested,
    RestartEnded,
    Submitted,
    TraitsSeen,
)
from carpool.core.lifecycle.retry import pause_us
from carpool.core.lifecycle.submissions import never_met
from carpool.core.model import Attempt, JobId, JobPhase, JobSpec, Memory, Micros, Outcome, Reason
from carpool.daemon.channels.connections import JobConnections
from carpool.daemon.channels.seat_packets import CLASSES
from carpool.daemon.channels.secondary import SecondaryProcesses
from carpool.daemon.checkpoint.jobs import CheckpointRestart
from carpool.daemon.jobs.info import last_info
from carpool.daemon.jobs.killing import Signaller, kill
from carpool.daemon.jobs.submissions import size_of
from carpool.daemon.jobs.table import JobRecord, Seated
from carpool.daemon.journal.contents import JournalContents
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.journal.rows import LARGEST_NUMBER
from carpool.daemon.memory.parts import MemoryParts
from carpool.daemon.seats.allocator import SeatAllocator
from carpool.daemon.seats.record import answer_growth, tell_constraints, usage_in
from carpool.daemon.seats.services import demand_in, is_paused
from carpool.daemon.shims.durable_steps import MachineRestart
from carpool.daemon.shims.job_ends import JobEnds
from carpool.daemon.shims.shim_table import ShimParts
from carpool.daemon.sigstop.stopped import JoinedReturns
from carpool.daemon.system.clock import monotonic_us, wall_us
from carpool.options.requests import dependencies
from carpool.protocol.display import user_name
from carpool.protocol.seat import Grow, Packet, PacketType, SeatWords

log = logging.getLogger(__name__)
PATIENCE_S = 10.0
LOOK_S = 0.05
HANDOVER_S = 0.02
#: Time between looks at two jobs that both claim one turn.
DOUBT_S = 1.0
_OPTIONAL, _WITHDRAWN, _KEEPS_TURN, _PACKS = 256, 512, 1024, 2048


class Restart:
    """One restart.  Between `load` and `finish` the core knows no job and no channel is read."""

    def __init__(
        self,
        parts: ShimParts,
        store: JournalStore,
        ends: JobEnds,
        found: FoundJobs,
        checkpoint_jobs: CheckpointRestart,
        machine_restart: MachineRestart,
        retry_pause_us: Micros,
    ) -> None:
        self._home = parts.home
        self._machine_restart = machine_restart
        self._jobs = parts.jobs
        self._store = store
        self._hooks = parts.hooks
        self._ends = ends
        self._channels = parts.channels
        self._checkpoint_jobs = checkpoint_jobs
        self._found = found
        self._recovery = parts.recovery
        self._retry_pause_us = retry_pause_us
        self._post = parts.post
        self._any_shim = False
        self._gone: Container[JobId] = ()

    def load(self, stored: JournalContents) -> None:
        """Load the contents of the journal, with the jobs in the order of their ids."""
        self._gone = stored.gone
        self._jobs.begin_after(max([*self._directories(), stored.last_job]))
        for job in stored.jobs:
            self._jobs.submitted.add(job.id, job.owner, size_of(job.spec))
            self._jobs.live[job.id] = job
            if job.phase is JobPhase.ENDED:
                self._jobs.end(job, last_info(job))
            else:
                job.phase = JobPhase.QUEUED
        self._recovery.begin(set(filter(self._ends.lives, self._jobs.live)))
        self._any_shim = bool(self._recovery.missing)

    def _directories(self) -> list[JobId]:
        """Return the jobs that have files: the journal may be lost, and a new job must not be taken for an old one."""
        names = [path.name for path in self._home.jobs.iterdir() if path.name.isdecimal()]
        return [number for number in map(int, names) if number <= LARGEST_NUMBER]

    async def wait_for_shims(self) -> None:
        """Wait until every living shim has registered (they try every 100 ms) or has ended."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while self._recovery.missing and asyncio.get_running_loop().time() < deadline:
            self._found.returns.look(self._recovery.missing)
            await asyncio.sleep(LOOK_S)
            self._recovery.look_again(self._ends.lives)
        self._found.returns.end()
        if self._recovery.missing:
            text = "the shims of jobs %s do not answer; their jobs count as running"
            log.error(text, sorted(self._recovery.missing))

    async def finish(self) -> None:
        """Tell the core everything, then read the channels and report what has happened meanwhile."""
        await self._calm_seats()
        await self._machine_restart.settle()
        unfinished = list(self._jobs.live.values())
        for job in unfinished:
            if not self._was_started(job):
                job.device, job.other_devices = None, ()  # it had been placed, and waits again
            if not (self._dependency_failed(job) or self._has_no_environment(job)):
                self._submit(job)
        self._forget_requeues(unfinished)
        running = [job for job in unfinished if job.id in self._jobs.live and self._was_started(job)]
        self._found.tell_weights()
        for job in running:
            self._found.tell(job, self._ends.is_over(job.id))
        self._found.tell_driver_memory()
        self._post(RestartEnded())
        self._recovery.end()
        self._go_on(unfinished, running)

    def _forget_requeues(self, unfinished: list[JobRecord]) -> None:
        """Drop requests to requeue jobs that had not been started after all: such jobs are not stopped once started."""
        for job in unfinished:
            if job.id in self._jobs.live and job.requeued_by is not None and not self._was_started(job):
                left = {attempt: by for attempt, by in job.control.requeued.items() if attempt != job.attempt}
                job.control = msgspec.structs.replace(job.control, requeued=left)
                self._store.note_control(job)

    def _go_on(self, unfinished: list[JobRecord], running: list[JobRecord]) -> None:
        """Now that the core knows all jobs, tell it what happened to them, and tell them what it has decided."""
        for job in unfinished:
            self._channels.resume(job)
        for job in running:
            if job.by_checkpoint:
                self._checkpoint_jobs.resume(job)
            self._found.answer(job)
            if job.requeued_by is not None and not job.control.timed_out:  # before its end is reported
                job.mark_stopping()
                self._post(RequeueRequested(job.id, user_name(job.requeued_by)))
            self._ends.deliver(job)
        for job in unfinished:
            if job.id in self._jobs.live and job.cancelled:
                self._post(CancelRequested(job.id))
        self._found.settle()

    def _submit(self, job: JobRecord) -> None:
        waited_us = max(0, wall_us() - job.submitted_us)
        past = tuple(ended.core for ended in job.past)
        spec = job.core_spec(lambda number, kind: number in self._jobs.live, self._retry_pause_us)
        self._post(Submitted(job.id, spec, waited_us, past, self._pause_left_us(job, spec, past)))

    def _pause_left_us(self, job: JobRecord, spec: JobSpec, past: tuple[Attempt, ...]) -> Micros:
        """Return how much is left of the pause before the job's next attempt."""
        if not past or job.counts_not(len(past)) or self._was_started(job):
            return 0
        passed_us = max(0, wall_us() - job.past[-1].ended_us)
        return max(0, pause_us(spec.retry_pause_us, past) - passed_us)

    async def _calm_seats(self) -> None:
        """Clear all successors, so that no turn changes hands while the daemon reads which job holds which turn.

        The short wait is for a job that has just read its successor and has not written it down yet.
        """
        for job in self._jobs.live.values():
            if job.seated is not None:
                job.seated.seat.set("successor", 0)
        if self._any_shim:
            await asyncio.sleep(HANDOVER_S)
        for job in self._jobs.live.values():
            if job.seated is not None:
                job.passed_seq = job.seated.seat.get("passed_seq")

    def _dependency_failed(self, job: JobRecord) -> bool:
        """End a job whose dependency has failed: the core refuses such jobs, but the earlier daemon may have died."""
        for number, kind in ((number, kind) for kind, numbers in dependencies(job.spec) for number in numbers):
            ended = self._jobs.ended.get(number)
            if ended is not None and not kind.met_by(ended.outcome):
                self._end(job, Outcome.REFUSED, never_met(ended.number, kind, ended.outcome))
                return True
            if ended is None and number not in self._jobs.live and number in self._gone:
                text = f"the journal has no record that can be read of job {number}, which it waits for"
                self._end(job, Outcome.REFUSED, Reason("dependency_failed", text))
                return True
        return False

    def _has_no_environment(self, job: JobRecord) -> bool:
        """End a job that has not started and has no environment, because its journal was restored from a backup."""
        if job.startable or self._was_started(job):
            return False
        text = "the journal was put back from a backup, which has no environments: submit the job again"
        self._end(job, Outcome.LOST, Reason("no_environment", text))
        return True

    def _end(self, job: JobRecord, outcome: Outcome, reason: Reason) -> None:
        """End a job before the core is told of it."""
        job.phase, job.outcome, job.reason, job.ended_us = JobPhase.ENDED, outcome, reason, self._jobs.now_us()
        self._hooks.ended(job)
        self._store.ended(job)
        self._jobs.end(job, last_info(job))

    def _was_started(self, job: JobRecord) -> bool:
        missing = job.id in self._recovery.missing and not job.spec.joined
        return missing or self._ends.was_started(job)


def _words_of(job: JobRecord) -> tuple[bool, SeatWords | None]:
    """Return whether the job wants a turn, and the words of its seat; None: it has no seat.

    The wish is read alone and first: a job writes what its turn is for before it writes that it wants the turn.
    """
    if job.seated is None:
        return False, None
    wants = job.seated.seat.get("want") != 0
    return wants, job.seated.seat.snapshot()


def _with_seat(found: Adopted, job: JobRecord, words: SeatWords, wants: bool) -> Adopted:
    """Add what the seat says."""
    return dataclasses.replace(
        found,
        attached=True,
        lane=job.lane,
        holds_turn=words.turn == 1,
        wants_turn=wants and words.turn == 0,
        paused=is_paused(words),
        demand=None if job.spec.service is None else demand_in(words),
    )


def _claims_turn(job: JobRecord) -> bool:
    return job.seated is not None and job.seated.seat.get("turn") != 0


class FoundJobs:
    """Jobs that an earlier daemon has started: what the core is told of each, and what each job is told."""

    def __init__(
        self,
        parts: ShimParts,
        seating: SeatAllocator,
        lines: JobConnections,
        memory: MemoryParts,
        secondary: SecondaryProcesses,
        processes: Signaller,
        returns: JoinedReturns,
    ) -> None:
        self.returns = returns
        self._seating = seating
        self._jobs = parts.jobs
        self._hooks = parts.hooks
        self._processes = processes
        self._doubtful: list[tuple[JobRecord, JobRecord]] = []  # the first holder found, and a second claimant
        self._lines = lines
        self._memory = memory
        self._secondary = secondary
        self._channels = parts.channels
        self._post = parts.post

    def tell_weights(self) -> None:
        """Tell the core which weights are on the devices."""
        for found in self._memory.found_weights.found():
            self._post(found)

    def tell(self, job: JobRecord, over: bool = False) -> None:
        """Tell the core of the job as it is; no job can hand it a turn before the daemon has sent it what it had.

        ``over``: the job's process has ended; the core is told later how.
        """
        started_us = _monotonic(job.started_us or wall_us())
        wants, words = _words_of(job)
        rival = None if words is None or not words.turn else self._other_holder(job)
        if words is not None and rival is not None:
            words = words._replace(turn=0)
        self._take_over(job, words)
        job.phase = JobPhase.STOPPING if job.control.timed_out else JobPhase.RUNNING
        job.device = job.device or next(iter(self._seating.devices))
        self._post(self._hooks.adopted(job, self._adopted(job, words, wants, started_us, over)))
        self._grant_extents(job)
        tell_constraints(job, self._post)  # before any job gets a turn
        if job.pinned_why is not None:
            self._post(TraitsSeen(job.id, alone=job.pinned_why))
        if rival is not None:
            self._doubtful.append((rival, job))

    def _grant_extents(self, job: JobRecord) -> None:
        if job.seated is not None and job.seated.extents:
            if job.bank is None:
                job.granted = Memory(0, job.granted.ephemeral)
            self._memory.granting.memory(job, answers=False)

    def _other_holder(self, job: JobRecord) -> JobRecord | None:
        """Return the job that was found before with the turn of this job's lane; None: none."""
        holder = None if job.lane is None else self._seating.holder.get(job.lane)
        return None if holder in (None, job.id) else self._jobs.live.get(holder)

    def settle(self, looks: int = 2) -> None:
        """Kill jobs that still claim another job's turn; a turn passed on between two reads has been reported now."""
        self._doubtful = [pair for pair in self._doubtful if all(map(_claims_turn, pair))]
        if self._doubtful and looks:
            asyncio.get_running_loop().call_later(DOUBT_S, self.settle, looks - 1)
            return
        for rival, job in self._doubtful:
            why = f"its seat says that the job has the turn of lane {job.lane}, which job {rival.id} has"
            kill(job, "two_holders", why, self._processes)

    def tell_driver_memory(self) -> None:
        """Tell the core what jobs' secondary processes have, before it decides anything."""
        self._memory.driver.resume()

    def _take_over(self, job: JobRecord, words: SeatWords | None) -> None:
        """Record what the daemon itself has to know of the job's seat."""
        if job.seated is None or words is None or job.lane is None:
            return
        job.granted = self._seating.ledger.of(job.id).granted
        job.usage = usage_in(job, words, monotonic_us())
        if words.turn:
            self._seating.give_turn(job.lane, job.id)
        self._memory.offloads.adopt(job)  # first: from now on an answer of the job counts
        self._memory.banking.adopt(job)

    def _adopted(self, job: JobRecord, words: SeatWords | None, wants: bool, started_us: Micros, over: bool) -> Adopted:
        assert job.device is not None
        offloaded = job.seated is not None and job.bank is None and not job.seated.whole
        found = Adopted(
            job=job.id,
            phase=job.phase,
            device=job.device,
            lane=None,
            granted=job.granted,
            attached=False,
            holds_turn=False,
            wants_turn=False,
            offloaded=offloaded,
            usage=job.usage,
            started_us=started_us,
            offload_asked=job.offloading,
            further=tuple(name for name in job.other_devices if name in self._seating.devices),
            timed_out=job.control.timed_out,
            paused_us=job.control.paused_in_all_us(wall_us()),
            over=over,
            moved_out=self._seating.ledger.of(job.id).moved_out if offloaded else 0,
        )
        return found if words is None else _with_seat(found, job, words, wants)

    def answer(self, job: JobRecord) -> None:
        """Wake the job for answers that an earlier daemon left without a wake-up; ask again what it left unanswered."""
        self._secondary.ask_again(job)
        if job.seated is None:
            return
        if job.moving and job.lane is not None:
            memory = self._seating.lane_memory(job.lane)
            self._lines.send(job.id, Packet(PacketType.LANE, a=job.lane), [memory])  # a second one does no harm
        for word in ("turn", "grow_ack", "yield", "placed_seq"):
            job.seated.board.wake(job.seated.seat, word)
        job.seated.notify()
        self._ask_again(job, job.seated)

    def _ask_again(self, job: JobRecord, seated: Seated) -> None:
        """Ask the core again about a request for memory that an earlier daemon has not answered, if there is one."""
        words = seated.seat.snapshot()  # `grow_seq` first: the request of that number has been written before
        if words.grow_seq == words.grow_ack:
            return
        job.grow_seq, kind = words.grow_seq, words.grow_class
        if kind & _WITHDRAWN:
            answer_growth(seated.board, seated.seat, Grow.DENIED, job.grow_seq)
        else:
            optional, keeps_turn, packs = (bool(kind & flag) for flag in (_OPTIONAL, _KEEPS_TURN, _PACKS))
            asked = CLASSES[kind & 1]
            self._channels.packets.ask(
                job, asked, words.grow_total, optional=optional, keeps_turn=keeps_turn, packs=packs
            )


def _monotonic(wall: Micros) -> Micros:
    """Return a wall clock time in the core's time (never negative: the machine may have been restarted)."""
    return max(0, monotonic_us() - max(0, wall_us() - wall))
