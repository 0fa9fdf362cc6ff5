"""The contents of an earlier daemon's journal: jobs as they are read back, what is missing, and all the rest."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from carpool.core.events import PaceKnown, UseKnown
from carpool.core.lifecycle.submissions import check_spec
from carpool.core.model import Attempt, DeviceId, Estimate, JobId, JobPhase, Micros, Reason, Settings, Usage
from carpool.daemon.config.options import DeviceOption
from carpool.daemon.jobs.control import JobControl, control_at_submission
from carpool.daemon.jobs.table import Ended, JobRecord
from carpool.daemon.journal.events import last_seq
from carpool.daemon.journal.history import set_unsound_aside
from carpool.daemon.journal.models import RegisteredModel, read_models
from carpool.daemon.journal.notices import read_notices
from carpool.daemon.journal.records import (
    CONTROL,
    INSERT_JOB,
    USE,
    DeviceTimes,
    Runs,
    SeatUse,
    job_row,
    log_name,
    read_device_times,
    read_history,
    read_unsuspendable,
)
from carpool.daemon.journal.restart_record import read_boot_id, read_figures, read_wall_ahead
from carpool.daemon.journal.rows import (
    AttemptRow,
    JobRow,
    MetaRow,
    NoticeRow,
    PlacementOfJob,
    Raw,
    in_one_transaction,
    quarantined_jobs,
    read_only,
    sound_rows,
)
from carpool.daemon.journal.salvage import Acknowledged, WalDamage, lost_jobs, placeholder_jobs, record_losses
from carpool.daemon.journal.schema import broken
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import StartupError
from carpool.protocol.api import SubmitRequest
from carpool.protocol.paths import Home

_ZEROS = ("last", "ended_us", "out_of_memory", "outgrown_bytes", "persistent_bytes", "ephemeral_bytes")


def read_devices(connection: sqlite3.Connection) -> dict[JobId, tuple[DeviceId, ...]]:
    """Read the devices of the jobs that have not ended or have several, their own first; none between two attempts."""
    decode = msgspec.json.Decoder(tuple[DeviceId, ...]).decode

    def devices_of(row: PlacementOfJob) -> tuple[JobId, tuple[DeviceId, ...]]:
        return row.job, decode(row.devices)

    these = (
        "WHERE devices LIKE '%,%' OR typeof(devices) != 'text' OR job IN (SELECT id FROM jobs WHERE phase != 'ended')"
    )
    return dict(sound_rows(connection, "placements", PlacementOfJob, devices_of, these))


def read_attempts(connection: sqlite3.Connection) -> dict[JobId, list[tuple[Ended, Estimate | None]]]:
    """Read the failed attempts of each job, in order, with the estimate that follows from each."""
    found: dict[JobId, list[tuple[Ended, Estimate | None]]] = {}
    rest = "WHERE last IS NOT 1 ORDER BY job, attempt"
    rows = sound_rows(connection, "attempts", AttemptRow, _attempt, rest, _attempt_of_which_little_is_known)
    for job, ended, estimate in rows:
        found.setdefault(job, []).append((ended, estimate))
    return found


def _attempt(row: AttemptRow) -> tuple[JobId, Ended, Estimate | None]:
    core = Attempt(row.reason, row.device, row.out_of_memory > 0, row.outgrown_bytes, row.out_of_memory > 1)
    peaks = row.persistent_bytes, row.ephemeral_bytes
    ended = Ended(core, row.started_us, row.ended_us, row.exit_code, row.signal, *peaks)
    return row.job, ended, msgspec.json.decode(row.estimate, type=Estimate) if row.estimate else None


def _attempt_of_which_little_is_known(row: Raw) -> Raw | None:
    """Repair an unreadable attempt so that it counts: attempts are numbered, and so are their files."""
    job, attempt = row["job"], row["attempt"]
    if not isinstance(job, int) or not isinstance(attempt, int):
        return None
    unknown = dict.fromkeys(("device", "started_us", "exit_code", "signal", "estimate"))
    text = {"reason": "its record could not be read", "log": log_name(attempt)}
    return {"job": job, "attempt": attempt, **unknown, **dict.fromkeys(_ZEROS, 0), **text}


def read_jobs(connection: sqlite3.Connection) -> Iterator[JobRecord]:
    """Yield all jobs of the journal in order of their ids."""
    attempts, uses, placed = read_attempts(connection), read_uses(connection), read_devices(connection)
    controls, times = read_job_controls(connection), read_device_times(connection)
    for job in sound_rows(connection, "jobs", JobRow, job_of, "ORDER BY id", _without_estimate):
        job.control = controls.get(job.id, job.control)
        earlier = attempts.get(job.id)
        if earlier:
            had(job, earlier)
        _give_devices(job, placed.get(job.id, ()))
        _with_times(job, times.get(job.id, DeviceTimes()))
        use = uses.get(job.id)
        job.was_seated = use is not None and use.attempt == job.attempt and use.was_seated
        yield job


def _give_devices(job: JobRecord, placed: tuple[DeviceId, ...]) -> None:
    """Set the job's devices as they were given to it: its process may run there, and not be recorded yet."""
    if placed and job.phase is not JobPhase.ENDED:
        job.device = placed[0]
    job.other_devices = placed[1:]


def _with_times(job: JobRecord, times: DeviceTimes) -> None:
    """Set device times: 0 where the journal has none; the exclusive time only if it is of the present attempt."""
    padded = (*times.past, *[0] * len(job.past))
    job.past = tuple(replace(ended, device_us=device_us) for ended, device_us in zip(job.past, padded, strict=False))
    if len(times.past) == len(job.past):
        job.alone = times.alone


def read_uses(connection: sqlite3.Connection) -> dict[JobId, SeatUse]:
    """Read the uses of seats by jobs that have not ended."""
    decode = msgspec.json.Decoder(SeatUse).decode

    def use_of(row: MetaRow) -> tuple[JobId, SeatUse]:
        return int(row.key.removeprefix(USE)), decode(row.value)

    return dict(sound_rows(connection, "meta", MetaRow, use_of, f"WHERE key LIKE '{USE}%'"))


def read_job_controls(connection: sqlite3.Connection) -> dict[JobId, JobControl]:
    """Read what users have asked for jobs that have not ended."""
    decode = msgspec.json.Decoder(JobControl).decode

    def control_of(row: MetaRow) -> tuple[JobId, JobControl]:
        return int(row.key.removeprefix(CONTROL)), decode(row.value)

    return dict(sound_rows(connection, "meta", MetaRow, control_of, f"WHERE key LIKE '{CONTROL}%'"))


def had(job: JobRecord, earlier: list[tuple[Ended, Estimate | None]]) -> None:
    """Give a job its earlier attempts, and drop what its row says of an earlier attempt."""
    job.past, job.estimate = tuple(ended for ended, _ in earlier), earlier[-1][1]
    if job.phase is not JobPhase.ENDED and (job.started_us or 0) <= job.past[-1].ended_us:
        job.started_us = job.device = None


def job_of(row: JobRow) -> JobRecord:
    """Make the record of a row.  Raises ValueError or MsgspecError for a row that makes no sense."""
    ended = row.phase is JobPhase.ENDED
    if ended and row.outcome is None:
        raise ValueError("it has ended without an outcome")
    request = msgspec.json.decode(row.spec, type=SubmitRequest)
    env = None if ended else msgspec.json.decode(row.env, type=dict[str, str] | None)
    request = msgspec.structs.replace(request, env=env or {})
    usage = Usage(
        persistent_peak=row.persistent_bytes,
        ephemeral_peak=row.ephemeral_bytes,
        iterations=row.iterations,
        device_us=row.device_us,
        residue=row.residue_bytes,
        out_bytes=row.out_bytes,
        out_us=row.out_us,
        in_bytes=row.in_bytes,
        in_us=row.in_us,
    )
    job = JobRecord(
        row.id,
        row.owner,
        row.gid,
        request,
        msgspec.json.decode(row.estimate, type=Estimate) if row.estimate else None,
        row.submitted_us,
        startable=env is not None,
        phase=row.phase,
        cancelled=bool(row.cancelled),
        control=JobControl() if ended else control_at_submission(row.owner, request),
        device=row.device,
        usage=usage,
        switches=row.switches,
        started_us=row.started_us,
        ended_us=row.ended_us,
        outcome=row.outcome,
        exit_code=row.exit_code,
        signal=row.signal,
        reason=Reason(row.reason_code, row.reason_text or "") if row.reason_code else None,
    )
    _ = job.own_files  # raises ValueError if the names have invalid codes
    if not ended:
        check_spec(job.core_spec(lambda number, kind: False, 0))
    return job


def _without_estimate(row: Raw) -> Raw | None:
    """Repair an unreadable row by leaving out the estimate: a job is not lost for that."""
    return row | {"estimate": None}


@dataclass(frozen=True, slots=True)
class PastSubmission:
    """``request``: without the environment, which is erased when a job ends; ``started``: whether the job ever ran."""

    request: SubmitRequest
    started: bool


def read_submissions(path: Path, jobs: Sequence[JobId]) -> dict[JobId, PastSubmission]:
    """Return the submissions of those jobs that the journal has.  Raises sqlite3.Error, ValueError."""
    numbers = ", ".join("?" * len(jobs))
    columns = "id, spec, started_us IS NOT NULL"
    with read_only(path) as connection:
        rows = connection.execute(f"SELECT {columns} FROM jobs WHERE id IN ({numbers})", jobs).fetchall()
    decode = msgspec.json.Decoder(SubmitRequest).decode
    return {job: PastSubmission(decode(spec), bool(started)) for job, spec, started in rows}


#: How long the notice is shown; `carpool doctor --journal` goes on showing the findings.
SHOWN_US: Micros = 7 * 24 * 3600 * 1_000_000
_UNREADABLE = "SELECT count(*), count(*) FILTER (WHERE source = 'jobs') FROM quarantine WHERE found_us > ?"
_LOST = "SELECT sum(last_job - first_job + 1), count(*) FROM losses WHERE found_us > ?"


def journal_notice(connection: sqlite3.Connection) -> str:
    """Return one line; empty: nothing was found in the last days."""
    since = (wall_us() - SHOWN_US,)
    rows, jobs = connection.execute(_UNREADABLE, since).fetchone()
    lost, findings = connection.execute(_LOST, since).fetchone()
    parts = [
        *([f"{_count(jobs, 'job')} of the journal could not be read"] if jobs else []),
        *([f"{_count(rows - jobs, 'other row')} of the journal could not be read"] if rows > jobs else []),
        *([f"{_count(lost, 'acknowledged job')} missing in the journal"] if lost else []),
        *(["the journal was damaged"] if findings and not lost else []),
    ]
    return f"{'; '.join(parts)}: carpool doctor --journal" if parts else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class GoneJobs:
    """Numbers of jobs that were acknowledged, but of which the journal has nothing that can be read."""

    quarantined: Collection[JobId] = ()
    lost: Collection[range] = ()

    def __contains__(self, job: object) -> bool:
        return job in self.quarantined or any(job in numbers for numbers in self.lost)


@dataclass(frozen=True, slots=True)
class JournalContents:
    """``last_job``: the largest number that was ever given; ``notice``: what users are told of the journal."""

    jobs: list[JobRecord]
    last_job: JobId
    gone: GoneJobs
    history: Runs
    unsuspendable: dict[str, JobId]
    models: list[RegisteredModel]
    figures: tuple[list[PaceKnown], list[UseKnown]]
    notices: list[NoticeRow]
    last_seq: int
    boot_id: str | None
    wall_ahead_us: int | None
    notice: str


@dataclass(frozen=True, slots=True)
class StoredJournal:
    """An open journal, what was in it, and the file that says which jobs were acknowledged."""

    connection: sqlite3.Connection
    contents: JournalContents
    acknowledged: Acknowledged


def read_contents(
    connection: sqlite3.Connection, privileges: Privileges, home: Home, told: JobId, damage: WalDamage | None
) -> JournalContents:
    """Read the journal; set aside what cannot be read, and record what is missing.  Raises StartupError.

    ``told``: the largest number of a job that was acknowledged; ``damage``: of the write-ahead log.
    """
    try:
        with in_one_transaction(connection):
            return _read(connection, privileges, home, told, damage)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY):
            hint = "free disk space, or choose another --home"
            raise StartupError("journal_unusable", f"cannot write the journal {home.journal}: {error}", hint) from None
        raise broken(home.journal, str(error)) from None
    except sqlite3.Error as error:
        raise broken(home.journal, str(error)) from None


def _read(
    connection: sqlite3.Connection, privileges: Privileges, home: Home, told: JobId, damage: WalDamage | None
) -> JournalContents:
    _check_meta(connection)
    set_unsound_aside(connection)
    jobs = list(read_jobs(connection))
    last_job = record_losses(connection, home, told, damage)
    jobs += _adopted(connection, privileges, home, {job.id for job in jobs})
    found = {job.id for job in jobs}
    return JournalContents(
        jobs=sorted(jobs, key=lambda job: job.id),
        last_job=last_job,
        gone=GoneJobs(quarantined_jobs(connection) - found, lost_jobs(connection)),
        history=read_history(connection),
        unsuspendable=read_unsuspendable(connection),
        models=read_models(connection),
        figures=read_figures(connection),
        notices=read_notices(connection),
        last_seq=last_seq(connection),
        boot_id=read_boot_id(connection),
        wall_ahead_us=read_wall_ahead(connection),
        notice=journal_notice(connection),
    )


def _check_meta(connection: sqlite3.Connection) -> None:
    """Set aside settings and devices that cannot be read: the daemon then starts with the defaults."""
    checks: list[tuple[str, Callable[[MetaRow], object]]] = [
        ("settings", lambda row: msgspec.json.decode(row.value, type=Settings)),
        ("devices", lambda row: msgspec.json.decode(row.value, type=tuple[DeviceOption, ...])),
    ]
    for key, decode in checks:
        list(sound_rows(connection, "meta", MetaRow, decode, f"WHERE key = '{key}'"))


def _adopted(connection: sqlite3.Connection, privileges: Privileges, home: Home, known: set[JobId]) -> list[JobRecord]:
    """Return the jobs that run without a record, after giving them one."""
    found = list(placeholder_jobs(connection, privileges, home, known))
    attempts = read_attempts(connection) if found else {}
    for job in found:
        if job.id in attempts:
            had(job, attempts[job.id])
    connection.executemany(INSERT_JOB, map(job_row, found))
    return found
