"""The journal in the daemon's terms: which statement records what, and what is read back at the start."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from carpool.core.commands import Command, Placement
from carpool.core.events import Event, TraitsSeen
from carpool.core.model import Estimate, JobId, Memory, Micros, Outcome
from carpool.core.stats import quantile
from carpool.daemon.jobs.control import NEVER_ALONE, AloneTime
from carpool.daemon.jobs.info import iteration_us
from carpool.daemon.jobs.table import JobRecord, JobTable, command_key
from carpool.daemon.journal.rows import PUT_META, Count, MetaRow, RunRow, read_only, sound_rows
from carpool.daemon.journal.usage import use_of_ended, use_of_failed
from carpool.daemon.journal.writer import Journal, Statement
from carpool.daemon.system.clock import wall_us
from carpool.protocol.api import RunInfo
from carpool.protocol.paths import JobFiles

DEVICE_TIME = "device_time:"  # before the job's number, in the journal's table `meta`


class DeviceTimes(msgspec.Struct, frozen=True):
    """Times of one job.  ``past``: of each past attempt, on one device; ``alone``: of the present, or last, attempt."""

    past: tuple[Count, ...] = ()
    alone: AloneTime = NEVER_ALONE


def device_time_statement(job: JobRecord) -> list[Statement]:
    """Return the statement to record a job's times; none for the usual job, started once and sharing its device."""
    past, alone = tuple(ended.device_us for ended in job.past), _closed(job)
    if not past and alone == NEVER_ALONE:
        return []
    return [(PUT_META, [(f"{DEVICE_TIME}{job.id}", msgspec.json.encode(DeviceTimes(past, alone)).decode())])]


def _closed(job: JobRecord) -> AloneTime:
    """Return the job's exclusive time, closed if the job has ended and so no longer holds its device."""
    return job.alone if job.ended_us is None else job.alone.told(False, job.ended_us, job.usage.device_us)


def read_device_times(connection: sqlite3.Connection) -> dict[JobId, DeviceTimes]:
    """Read the times by job; the usual job has none."""
    decode = msgspec.json.Decoder(DeviceTimes).decode

    def of_row(row: MetaRow) -> tuple[JobId, DeviceTimes]:
        return int(row.key.removeprefix(DEVICE_TIME)), decode(row.value)

    return dict(sound_rows(connection, "meta", MetaRow, of_row, f"WHERE key LIKE '{DEVICE_TIME}%'"))


class AloneTimes:
    """Records since when jobs that turned out to be exclusive have held their devices."""

    def __init__(self, jobs: JobTable, journal: Journal) -> None:
        self._jobs = jobs
        self._journal = journal

    def happened(self, _now_us: Micros, happened: Event | Command) -> None:
        """Handle an event of the core that says whether a job is exclusive."""
        if isinstance(happened, TraitsSeen) and (job := self._jobs.live.get(happened.job)) is not None:
            self._tell(job, happened.alone is not None)

    def settle(self) -> None:
        """After a restart, note that a job is not exclusive if no reason for that is known now."""
        for job in self._jobs.live.values():
            if not (job.traits or job.ungated_told or job.pinned_why):
                self._tell(job, False)

    def _tell(self, job: JobRecord, alone: bool) -> None:
        before, job.alone = job.alone, job.alone.told(alone, self._jobs.now_us(), job.usage.device_us)
        if job.alone != before:
            for sql, rows in device_time_statement(job):
                self._journal.owe(sql, rows)


INSERT_JOB = """INSERT INTO jobs
  (id, owner, gid, spec, env, estimate, submitted_us, phase) VALUES (?, ?, ?, ?, ?, ?, ?, 'queued')"""
_STARTED = "UPDATE jobs SET phase = 'running', device = ?, started_us = ? WHERE id = ?"
_ENDED = """UPDATE jobs SET phase = 'ended', device = ?, outcome = ?, exit_code = ?, signal = ?, reason_code = ?,
  env = '{}', reason_text = ?, persistent_bytes = ?, ephemeral_bytes = ?, iterations = ?, device_us = ?, switches = ?,
  residue_bytes = ?, started_us = ?, ended_us = ?, out_bytes = ?, out_us = ?, in_bytes = ?, in_us = ? WHERE id = ?"""
# Before the job's number, in the journal's table `meta`: how a job uses its device, and what users have asked for it.
USE, CONTROL = "use:", "control:"
#: Before a command's key, in `meta`: the job, a run of the command, that ended when the driver suspended it.
UNSUSPENDABLE = "unsuspendable:"
_PLACED = "INSERT OR REPLACE INTO placements VALUES (?, ?, ?)"
_STARTING = "UPDATE placements SET devices = ? WHERE job = ?"
_LEFT = "UPDATE placements SET devices = '[]' WHERE job = ?"
_ATTEMPT = "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_RAN = "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)"
_FORGET = "DELETE FROM runs WHERE command_key = ? AND ended_us < ?"
KEPT_RUNS = 20  # of each command
SHARE_PPM = 950_000  # of these runs must have got by with the memory that the next run is expected to need


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a command that ended well."""

    ended_us: int
    persistent: int  # bytes, peak
    ephemeral: int
    iterations: int
    iteration_us: int | None


class SeatUse(msgspec.Struct, frozen=True, array_like=True):
    """The use of its device by an attempt so far."""

    attempt: int
    was_seated: bool


Runs = dict[str, deque[RunRecord]]  # command key: the last runs, the newest last


def log_name(attempt: int) -> str:
    """Return the name of an attempt's log in the job's directory."""
    return JobFiles(Path(), attempt).log.name


class JournalStore:
    """Writes through the journal's thread; keeps `runs` in memory, too (a few small rows per command)."""

    def __init__(
        self,
        journal: Journal,
        history: Runs,
        unsuspendable: dict[str, JobId] | None = None,
    ) -> None:
        self._journal = journal
        self._history = history
        self._unsuspendable = unsuspendable or {}

    def submitted(self, jobs: Sequence[JobRecord]) -> asyncio.Future[None]:
        """Record jobs; done when all are on the disk.  Raises JournalFull from the future; then none is recorded."""
        return self._journal.durable(INSERT_JOB, *map(job_row, jobs), told=max(job.id for job in jobs))

    def flushed(self) -> asyncio.Future[None]:
        """Return a future that is done when everything that has happened so far is on the disk."""
        return self._journal.flushed()

    def cancelled(self, job: JobRecord) -> asyncio.Future[None]:
        return self._journal.durable("UPDATE jobs SET cancelled = 1 WHERE id = ?", (job.id,))

    def control(self, job: JobRecord) -> asyncio.Future[None]:
        """Record what users have asked for the job; done when it is on the disk."""
        return self._journal.durable(PUT_META, control_row(job))

    def note_control(self, job: JobRecord) -> None:
        """Record the same as `control`, without waiting."""
        self._journal.owe(PUT_META, [control_row(job)])

    def changed(self, job: JobRecord) -> asyncio.Future[None]:
        """Record a changed submission of the job; done when it is on the disk."""
        spec = msgspec.json.encode(msgspec.structs.replace(job.spec, env={})).decode()
        return self._journal.durable("UPDATE jobs SET spec = ? WHERE id = ?", (spec, job.id))

    def placed(self, job: JobRecord, decision: Placement | None) -> None:
        """Record where a job was placed, and on what that decision was based."""
        self._journal.owe(_PLACED, [(job.id, _devices(job), msgspec.json.encode(decision).decode())])

    def starting(self, job: JobRecord) -> asyncio.Future[None]:
        """Record where the job's process is about to start; done when that is on the disk.

        What was recorded when the job was placed may be gone: the end of the attempt before is recorded after it.
        """
        return self._journal.durable(_STARTING, (_devices(job), job.id))

    def used(self, job: JobRecord) -> None:
        """Record how the job's present attempt has used its device so far."""
        text = msgspec.json.encode(SeatUse(job.attempt, job.was_seated)).decode()
        self._journal.owe(PUT_META, [(f"{USE}{job.id}", text)])

    def started(self, job: JobRecord) -> None:
        self._journal.owe(_STARTED, [(job.device, job.started_us, job.id)])

    def failed(self, job: JobRecord) -> asyncio.Future[None]:
        """Record the job's last attempt, after which another one is to follow; done when it is on the disk."""
        ended = job.past[-1]
        core = ended.core
        row = (
            *(job.id, len(job.past), 0, core.device, ended.started_us, ended.ended_us, ended.exit_code, ended.signal),
            *(
                core.out_of_memory + core.before_memory,
                core.outgrown,
                core.text,
                ended.persistent_bytes,
                ended.ephemeral_bytes,
            ),
            *(msgspec.json.encode(job.estimate).decode() if job.estimate else None, log_name(len(job.past))),
        )
        also = [use_of_failed(job), *device_time_statement(job), (_LEFT, [(job.id,)])]
        return self._journal.durable(_ATTEMPT, row, also=also)

    def _last(self, job: JobRecord) -> None:
        """Record how the attempt ended with which the job ended."""
        usage, text = job.usage, job.reason.text if job.reason else ""
        row = (
            *(job.id, job.attempt, 1, job.device, job.started_us, job.ended_us, job.exit_code, job.signal, 0, 0),
            *(text, usage.persistent_peak, usage.ephemeral_peak, None, log_name(job.attempt)),
        )
        self._journal.owe(_ATTEMPT, [row])

    def ended(self, job: JobRecord) -> None:
        """Record the end; a successful run that used its device counts in the estimate of the next one."""
        assert job.outcome is not None
        usage, reason = job.usage, job.reason
        row = (
            *(job.device, job.outcome.value, job.exit_code, job.signal),
            *((reason.code, reason.text) if reason else (None, None)),
            *(usage.persistent_peak, usage.ephemeral_peak, usage.iterations, usage.device_us),
            *(job.switches, usage.residue, job.started_us, job.ended_us),
            *(usage.out_bytes, usage.out_us, usage.in_bytes, usage.in_us, job.id),
        )
        also = [use_of_ended(job), *device_time_statement(job)]
        self._journal.owe(_ENDED, [row], erases=True, also=also)
        self._journal.owe("DELETE FROM meta WHERE key = ?", [(f"{USE}{job.id}",), (f"{CONTROL}{job.id}",)])
        if job.started_us is not None:
            self._last(job)
        if (
            job.outcome is Outcome.SUCCEEDED
            and not job.by_checkpoint
            and (usage.persistent_peak or usage.ephemeral_peak)
        ):
            self._remember(job)

    def estimate(self, job: JobRecord) -> Estimate | None:
        """Return the job's estimate: memory from a hint or an estimator, and the rest from earlier runs.

        Without figures for memory, all of it is from earlier runs.
        """
        spec, earlier = job.spec, expected(self._history.get(job.kind, ()))
        if spec.persistent_bytes is None and spec.ephemeral_bytes is None:
            return earlier
        memory = Memory(spec.persistent_bytes or 0, spec.ephemeral_bytes or 0)
        if earlier is None:
            return Estimate(memory, spec.estimate_source)
        return Estimate(memory, spec.estimate_source, earlier.iteration_us, earlier.iterations)

    def runs(self, owner: int, cwd: str, argv: list[str]) -> list[RunInfo]:
        """Return the known runs of a command, the newest last."""
        known = self._history.get(command_key(owner, cwd, argv), ())
        return [RunInfo(run.persistent, run.ephemeral) for run in known]

    def ended_by_suspend(self, job: JobRecord) -> None:
        """Note that a job ended when the driver suspended it: its command is not suspended again."""
        self._unsuspendable[job.kind] = job.id
        self._journal.owe(PUT_META, [(f"{UNSUSPENDABLE}{job.kind}", str(job.id))])

    def why_not_suspended(self, job: JobRecord) -> str | None:
        number = self._unsuspendable.get(job.kind)
        return None if number is None else f"job {number}, a run of its command, ended when the driver suspended it"

    def _remember(self, job: JobRecord) -> None:
        usage, key = job.usage, job.kind
        each = iteration_us(job) if usage.iterations else None
        run = RunRecord(wall_us(), usage.persistent_peak, usage.ephemeral_peak, usage.iterations, each)
        runs = self._history.setdefault(key, deque(maxlen=KEPT_RUNS))
        runs.append(run)
        self._journal.owe(_RAN, [(key, *dataclasses.astuple(run))])
        if len(runs) == KEPT_RUNS:
            self._journal.owe(_FORGET, [(key, runs[0].ended_us)])


def control_row(job: JobRecord) -> tuple[str, str]:
    """Return the row of the table `meta` for what users have asked for the job."""
    return f"{CONTROL}{job.id}", msgspec.json.encode(job.control).decode()


def job_row(job: JobRecord) -> tuple[object, ...]:
    """Return the values of `INSERT_JOB`."""
    env = msgspec.json.encode(job.spec.env if job.startable else None).decode()
    spec = msgspec.json.encode(msgspec.structs.replace(job.spec, env={})).decode()
    estimate = msgspec.json.encode(job.estimate).decode() if job.estimate else None
    return (job.id, job.owner, job.gid, spec, env, estimate, job.submitted_us)


def expected(runs: Collection[RunRecord]) -> Estimate | None:
    """Return what the next run will need: memory that sufficed for most runs, and the length of the last run."""
    if not runs:
        return None
    persistent = quantile([run.persistent for run in runs], SHARE_PPM)
    ephemeral = quantile([run.ephemeral for run in runs], SHARE_PPM)
    *_, last = runs
    return Estimate(Memory(persistent, ephemeral), "history", last.iteration_us, last.iterations or None)


def read_history(connection: sqlite3.Connection) -> Runs:
    """Read the last `KEPT_RUNS` runs of each command."""
    history: Runs = {}
    for row in sound_rows(connection, "runs", RunRow, lambda row: row, "ORDER BY ended_us, rowid"):
        _, *figures = msgspec.structs.astuple(row)
        history.setdefault(row.command_key, deque(maxlen=KEPT_RUNS)).append(RunRecord(*figures))
    return history


def read_unsuspendable(connection: sqlite3.Connection) -> dict[str, JobId]:
    """Read the commands of which a run ended when the driver suspended it, with the job of that run."""

    def one(row: MetaRow) -> tuple[str, JobId]:
        return row.key.removeprefix(UNSUSPENDABLE), int(row.value)

    return dict(sound_rows(connection, "meta", MetaRow, one, f"WHERE key LIKE '{UNSUSPENDABLE}%'"))


def read_placement(path: Path, job: JobId) -> bytes | None:
    """Return a job's last placement, as JSON of `carpool.core.commands.Placement`; None: none is recorded.

    Reads the file: the placement may be long ago.
    """
    with read_only(path) as connection:
        row = connection.execute("SELECT decision FROM placements WHERE job = ?", (job,)).fetchone()
    return None if row is None or row[0] == "null" else row[0].encode()


def _devices(job: JobRecord) -> str:
    return msgspec.json.encode([job.device, *job.other_devices]).decode()
