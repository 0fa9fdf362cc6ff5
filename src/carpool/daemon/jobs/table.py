"""The daemon's record of each job beyond the core: submission, process, seat, earlier attempts."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import msgspec

from carpool.core.model import (
    STOP_SIGNAL,
    Attempt,
    Dependency,
    DeviceId,
    Estimate,
    JobId,
    JobPhase,
    JobSpec,
    LaneId,
    Memory,
    MemoryClass,
    Micros,
    Outcome,
    Reason,
    Service,
    Usage,
    alone_after,
)
from carpool.core.state.job import NO_USAGE
from carpool.daemon.jobs.control import NEVER_ALONE, NOTHING_ASKED, AloneTime, JobControl, attempt_us
from carpool.daemon.jobs.joined_process import JoinedProcess
from carpool.daemon.jobs.seat_table import Board
from carpool.daemon.jobs.submissions import BurnedIds, JobAmounts
from carpool.daemon.system.clock import WallSteps, monotonic_us, wall_us
from carpool.daemon.system.peer import person_of
from carpool.devices.base import BankId
from carpool.options.requests import dependencies, named_devices, told_to_core
from carpool.protocol import job_names
from carpool.protocol.api import SubmitRequest
from carpool.protocol.display import user_name
from carpool.protocol.job_names import job_number
from carpool.protocol.seat import Seat, SeatWords, Yield

NOTHING_GRANTED = Memory()
LONG_ROW = 4096  # bytes; a usual row of an ended job has 800
#: Whether a job still waits for another one to end in the way that the dependency requires.
WaitsFor = Callable[[JobId, Dependency], bool]


@dataclass(frozen=True, slots=True)
class Seated:
    """The seat of a job's attached process."""

    board: Board
    seat: Seat
    pid: int
    store_fd: int  # a descriptor that the device owns
    since_us: int  # when the process got its seat, or earlier
    extents: bool = False  # the job's memory comes in extents, and the daemon moves it (see `carpool.devices.base`)
    whole: bool = False  # the job's memory comes from its driver: the daemon makes and moves none

    def notify(self) -> None:
        """Ring the doorbell of the job's helper thread."""
        self.board.notify(self.seat)


@dataclass(slots=True)
class Pieces:
    """The extents of a lane or bank that a process has: the sizes of those that the job's shim keeps, in order."""

    number: int
    sizes: list[int] = field(default_factory=list)
    sent: int = 0  # how many of them this daemon has sent to the process

    @property
    def end(self) -> int:
        """The size of all extents together."""
        return sum(self.sizes)


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over.  Times are wall clock times."""

    core: Attempt
    started_us: int | None
    ended_us: int
    exit_code: int | None = None
    signal: int | None = None
    persistent_bytes: int = 0  # the most that the attempt has used, like ephemeral_bytes
    ephemeral_bytes: int = 0
    device_us: int = 0  # device time, on one device

    def moved(self, step_us: Micros) -> Ended:
        """Return this attempt adjusted to a wall clock that has been set forward by ``step_us``."""
        started_us = None if self.started_us is None else max(0, self.started_us + step_us)
        return replace(self, started_us=started_us, ended_us=max(0, self.ended_us + step_us))

    @property
    def interrupted(self) -> bool:
        """Whether a restart of the machine ended the attempt: other ends before a retry leave a code or a signal."""
        return self.exit_code is None and self.signal is None and not self.core.out_of_memory


@dataclass(slots=True)
class JobRecord:
    """One job that has not ended.  ``spec.env`` goes to the job and nowhere else."""

    id: JobId
    owner: int
    gid: int
    spec: SubmitRequest
    estimate: Estimate | None
    submitted_us: int
    past: tuple[Ended, ...] = ()  # attempts that are over and were followed by another one
    startable: bool = True  # False: the job's environment is not known, so its processes can go on but not start again
    phase: JobPhase = JobPhase.QUEUED
    cancelled: bool = False
    control: JobControl = NOTHING_ASKED
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by the request that changes the job
    device: DeviceId | None = None
    lane: LaneId | None = None
    other_devices: tuple[DeviceId, ...] = ()  # remaining devices of a multi-device job
    granted: Memory = NOTHING_GRANTED
    driver_bytes: int = 0  # what secondary processes may have from the driver (`daemon.memory.driver_memory`)
    usage: Usage = NO_USAGE
    busy_us: int | None = None  # device busy time in the job's turns since `busy_since_us`; None: not measured
    busy_since_us: int = 0  # turn time (`usage.device_us`) at the job's first sample
    out_of: int = 0  # `OutOf` of the job's seat, noted when its process left the seat
    left_seat: SeatWords | None = None  # the seat as the last process has left it
    traits: int = 0  # traits of the job's seat that the core has been told
    passing: str = ""  # the form of a hooked call that passes because it is not known (`Seat.passing`)
    alone: AloneTime = NEVER_ALONE  # time outside turns for which the present attempt has held its device
    seated: Seated | None = None
    suspending: bool = False  # the driver is suspending the job, or a process of it has vanished because of that
    was_seated: bool = False  # a process of the job has had its seat
    refused_pid: int | None = None  # a process of the job that was refused a seat and uses a host device all the same
    ungated_pid: int | None = None  # a process of the job that bypasses the gate (`daemon.telemetry.ungated_processes`)
    ungated_told: int | None = None  # the ungated process that the core has been told of
    has_secondary: bool = False  # further processes of the job use its device (see `carpool.daemon.channels.secondary`)
    line: str = ""  # the channel of the attached process (see `carpool.daemon.channels.connections`)
    on_device: bool = False  # the job is a checkpoint job and not suspended
    pinned_why: str | None = None  # why the job cannot be suspended
    fault: Reason | None = None  # why the daemon has killed the job
    bank: BankId | None = None  # the bank that the job holds; None: its memory is in its store, or it is not seated
    bank_seq: int = 0  # `passed_seq` when the job got its bank; while unchanged, the job has restored nothing
    bank_sent: bool = True  # the job has been told of the bank that its seat names
    kept_banks: set[BankId] = field(default_factory=set)  # banks whose descriptors the job's shim keeps
    weights: set[str] = field(default_factory=set)  # memory of weights that the job's shim keeps, by name
    weights_sent: set[str] = field(default_factory=set)  # those of `weights` that this daemon has sent to the job
    pieces: dict[MemoryClass, Pieces] = field(default_factory=dict)  # of the job's lane and bank, if in extents
    cuts: dict[tuple[MemoryClass, int, int], int] = field(default_factory=dict)  # unanswered CUTs: looks since then
    adopted_unreported: bool = False  # found after a restart, and not told yet what is known of its memory
    restored: bool = False  # the bank has the content of the store; the seat does not say so yet
    grant_waits: Reason | None = None  # why granted memory is not available yet
    offloading: bool = False  # the job has been asked to offload and has not answered
    turn_due: bool = False  # the core has meanwhile granted a turn, which the job gets after its answer
    yield_due: Yield | None = None  # how the job has already been asked to give that turn back
    pid: int | None = None
    process: JoinedProcess | None = None  # of a job that has joined
    stopped: bool = False  # stopped by a signal, and so paused (`carpool.daemon.sigstop.stopped`)
    continued: bool = False  # a stopped job that runs for a moment to give what it owes (`carpool.daemon.sigstop`)
    switches: int = 0
    scratch_bytes: int = 0
    moving: bool = False  # found in the middle of a move to another lane, after a restart
    passed_seq: int = 0  # number of the last turn whose end has been reported to the core
    grow_seq: int = 0  # number of the latest request for memory that the core knows
    started_us: int | None = None
    ended_us: int | None = None
    outcome: Outcome | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: Reason | None = None
    _kind: str = ""

    @property
    def is_engine(self) -> bool:
        """Whether the job is a server of models, which is told when it has requests."""
        return self.spec.engine

    @property
    def number(self) -> str:
        """The job's number as users write it."""
        return job_number(self.id, self.spec.array, self.spec.index)

    @property
    def kind(self) -> str:
        """The key of the job's command: jobs of one kind run the same command (see `command_key`)."""
        if not self._kind:
            self._kind = command_key(self.owner, self.spec.cwd, self.spec.argv)
        return self._kind

    @property
    def attempt(self) -> int:
        """The number of the present start, or of the next one."""
        return len(self.past) + 1

    @property
    def recovering(self) -> bool:
        """Whether the job has run out of memory before and so has its device to itself."""
        return alone_after(ended.core for ended in self.past)

    @property
    def by_checkpoint(self) -> bool:
        """Whether the job is suspended between its turns, which have the whole device."""
        return self.spec.checkpoint

    @property
    def submitted_exclusive(self) -> bool:
        """Whether the job was submitted as one that shares its devices with no other job."""
        return self.spec.exclusive or self.spec.gpus > 1

    @property
    def own_files(self) -> tuple[str | None, str | None]:
        """The user's files for standard output and standard error; None for each that the submission does not name."""
        output, error, numbers = self.spec.output, self.spec.error, (self.id, self.spec.array)
        return output and job_names.of_job(output, *numbers), error and job_names.of_job(error, *numbers)

    @property
    def requeued_by(self) -> int | None:
        """Uid of the user who wants the present attempt stopped and another one to follow; None: no user does."""
        return self.control.requeued.get(self.attempt)

    @property
    def pauser(self) -> str | None:
        """The name of what keeps the job off its device, as the core is told; None: the job is not paused."""
        if self.control.paused_by is not None:
            return user_name(self.control.paused_by)
        return STOP_SIGNAL if self.stopped else None

    @property
    def attached(self) -> Seated:
        """The seat of the attached process, for work on jobs that have one."""
        assert self.seated is not None
        return self.seated

    def move_moments(self, step_us: Micros) -> None:
        """Move the job's times with a wall clock set forward by ``step_us``: past events stay as long ago as before."""
        self.submitted_us = max(0, self.submitted_us + step_us)
        self.started_us = None if self.started_us is None else max(0, self.started_us + step_us)
        self.past = tuple(ended.moved(step_us) for ended in self.past)
        self.control, self.alone = self.control.moved(step_us), self.alone.moved(step_us)

    def mark_cancelled(self) -> None:
        """Mark the job as cancelled: its processes are about to be signalled; without a process it ends at once."""
        self.cancelled = True
        self.mark_stopping()

    def mark_stopping(self) -> None:
        """Mark the job as stopping: its processes, if it has any, are about to be signalled."""
        if self.phase in (JobPhase.STARTING, JobPhase.RUNNING):
            self.phase = JobPhase.STOPPING

    def core_spec(self, waits_for: WaitsFor, retry_pause_us: Micros) -> JobSpec:
        """Return the job as the core is told of it."""
        spec, held_by = self.spec, self.control.held_by
        after, after_any, after_notok = (
            tuple(number for number in numbers if waits_for(number, kind)) for kind, numbers in dependencies(spec)
        )
        return JobSpec(
            **told_to_core(spec),
            owner=self.owner,
            kind=self.kind,
            after=after,
            device=named_devices(spec),
            gang=spec.gpus,
            estimate=self.estimate,
            retries=self._retries,
            retry_pause_us=retry_pause_us if spec.retries else 0,
            recover=self.startable and not spec.foreground,
            service=None if spec.service is None else Service(spec.service, spec.engine, spec.pin),
            after_any=after_any,
            after_notok=after_notok,
            begin_us=None if spec.begin_us is None else max(0, spec.begin_us - wall_us() + monotonic_us()),
            held_by=None if held_by is None else user_name(held_by),
            paused_by=self.pauser,
            at_most=spec.array_limit,
            user=user_name(self.owner),
            person=None if (person := person_of(self.owner)) == self.owner else person,
        )

    @property
    def _retries(self) -> int:
        """The retries for the core, which counts all attempts: those interrupted by a restart or a user are added."""
        return self.spec.retries + sum(map(self.counts_not, range(1, self.attempt))) if self.startable else 0

    def counts_not(self, attempt: int) -> bool:
        """Return whether an attempt that is over was interrupted, so that it does not count as a failure."""
        return self.past[attempt - 1].interrupted or attempt in self.control.requeued

    def again(self, attempt: Attempt, estimate: Estimate | None, code: int | None, number: int | None) -> JobRecord:
        """Return the record of the same submission before its next start."""
        usage = self.usage
        peaks = usage.persistent_peak, usage.ephemeral_peak
        now_us = wall_us()
        ended = Ended(attempt, self.started_us, now_us, code, number, *peaks, attempt_us(self, now_us))
        past = (*self.past, ended)
        return JobRecord(
            self.id,
            self.owner,
            self.gid,
            self.spec,
            estimate,
            self.submitted_us,
            past,
            control=self.control.in_next_attempt(now_us),
            changing=self.changing,
        )


def command_key(owner: int, cwd: str, argv: list[str]) -> str:
    """Return the key shared by runs of the same command line, in the same directory, by the same user."""
    return hashlib.sha256(msgspec.json.encode([owner, cwd, argv])).hexdigest()


@dataclass(frozen=True, slots=True)
class EndedJob:
    """The row of an ended job in the lists, already encoded: all that stays in memory of the job."""

    id: JobId
    owner: int
    outcome: Outcome
    info: msgspec.Raw
    submitted_us: Micros  # wall clock
    ended_us: Micros
    attempt: int = 1
    array: JobId | None = None
    index: int | None = None
    retry_of: JobId | None = None
    joined: bool = False

    @property
    def number(self) -> str:
        """The job's number as users write it."""
        return job_number(self.id, self.array, self.index)

    @property
    def weight(self) -> int:
        """The number of jobs that this one counts for: one, and more if its row is long."""
        return 1 + len(bytes(self.info)) // LONG_ROW


class JobTable:
    """All jobs by id, and the callers that wait for the end of one.

    ``steps`` of the wall clock change the times of live jobs, which are then reported to ``moved``.
    """

    def __init__(
        self,
        steps: WallSteps | None = None,
        moved: Callable[[Micros, Collection[JobRecord]], None] = lambda ahead_us, jobs: None,
    ) -> None:
        self._steps = WallSteps() if steps is None else steps
        self._moved = moved
        self.live: dict[JobId, JobRecord] = {}
        self.submitted = JobAmounts()  # counts jobs from before they are durable to their end, and bytes of submissions
        self.ended: dict[JobId, EndedJob] = {}
        self.kept = JobAmounts()  # counts ended jobs, and their weights
        self.one_ended = asyncio.Event()  # set after each end of a job; the waiting task clears it
        self.refused = BurnedIds()
        self._next_id: JobId = 1
        self._waiting: dict[JobId, asyncio.Event] = {}
        self._being_retried: set[JobId] = set()

    def now_us(self) -> Micros:
        """Return the wall clock time, for a job's record; if that clock was set, move the times of live jobs first."""
        step_us = self._steps.take()
        if step_us:
            for job in self.live.values():
                job.move_moments(step_us)
            self._moved(self._steps.ahead_us, self.live.values())
        return wall_us()

    def new_id(self) -> JobId:
        """Return the next job id.  Ids only increase, and a refused number is not used again."""
        job, self._next_id = self._next_id, self._next_id + 1
        return job

    def begin_after(self, last: JobId) -> None:
        """Continue after ``last``, the last number that an earlier daemon has given."""
        self._next_id = last + 1

    def was_given(self, job: JobId) -> bool:
        """Return whether the number has been given to a job, which may have been removed since.

        Numbers that an earlier daemon refused count as given, because nothing is known about them.
        """
        return 0 < job < self._next_id and job not in self.refused

    def owner(self, job: JobId) -> int | None:
        """Return the uid of a job's owner; None for an unknown job."""
        known = self.live.get(job) or self.ended.get(job)
        return None if known is None else known.owner

    def device(self, job: JobId) -> DeviceId:
        """Return the device of a job; empty for a job that is on no device."""
        known = self.live.get(job)
        return "" if known is None else known.device or ""

    def called(self, job: JobId) -> str:
        """Return a job's name as users write it (`job_number`); for a removed job its id."""
        found = self.live.get(job) or self.ended.get(job)
        return str(job) if found is None else found.number

    def elements(self, array: JobId) -> list[JobId]:
        """Return the newest job of each index of an array, in the order of ids: a retry replaces what it repeats."""
        live = ((job.spec.array, job.spec.index, number) for number, job in self.live.items())
        ended = ((job.array, job.index, number) for number, job in self.ended.items())
        found = sorted((number, index) for its, index, number in (*live, *ended) if its == array)
        return sorted({index: number for number, index in found}.values())

    @contextmanager
    def being_retried(self, jobs: Iterable[JobId]) -> Iterator[None]:
        """Mark jobs as being retried while the new jobs in their places are not yet live."""
        numbers = set(jobs)
        self._being_retried |= numbers
        try:
            yield
        finally:
            self._being_retried -= numbers

    def is_being_retried(self, job: JobId) -> bool:
        """Return whether a request is about to start the job again."""
        return job in self._being_retried

    def with_predecessors(self, jobs: Iterable[EndedJob]) -> list[EndedJob]:
        """Add to each job the ended jobs that it repeats: without their retry these would count as not tried again."""
        found = {job.id: job for job in jobs}
        for job in tuple(found.values()):
            while job.retry_of in self.ended:
                job = self.ended[job.retry_of]
                found[job.id] = job
        return list(found.values())

    def retries(self) -> dict[JobId, JobId]:
        """Map ended jobs to the jobs that run, or have run, in their place."""
        live = ((job.spec.retry_of, number) for number, job in self.live.items())
        ended = ((job.retry_of, number) for number, job in self.ended.items())
        return {first: number for first, number in (*live, *ended) if first is not None}

    def end(self, job: JobRecord, info: msgspec.Raw) -> None:
        """Move a job from live to ended, and wake the callers that wait for its end.  ``info``: its row for lists."""
        assert job.outcome is not None
        ended_us = job.submitted_us if job.ended_us is None else job.ended_us
        spec = job.spec
        ended = EndedJob(
            id=job.id,
            owner=job.owner,
            outcome=job.outcome,
            info=info,
            submitted_us=job.submitted_us,
            ended_us=ended_us,
            attempt=job.attempt,
            array=spec.array,
            index=spec.index,
            retry_of=spec.retry_of,
            joined=spec.joined,
        )
        self.ended[job.id] = ended
        self.kept.add(job.id, job.owner, ended.weight)
        self.one_ended.set()
        del self.live[job.id]
        self.submitted.remove(job.id)
        waiting = self._waiting.pop(job.id, None)
        if waiting is not None:
            waiting.set()

    def remove(self, jobs: Iterable[JobId]) -> None:
        """Forget these jobs, which have ended."""
        for job in jobs:
            if self.ended.pop(job, None) is not None:
                self.kept.remove(job)

    async def wait_end(self, job: JobId, timeout_s: float | None) -> bool:
        """Return True as soon as the job has ended, False after ``timeout_s``."""
        if job in self.ended:
            return True
        event = self._waiting.setdefault(job, asyncio.Event())
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except TimeoutError:
            return False
        return True
