"""The jobs of an earlier daemon, as they are read back at the start."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from carpool.core.lifecycle.submissions import check_spec
from carpool.core.model import Attempt, DeviceId, Estimate, JobId, JobPhase, Reason, Usage
from carpool.daemon.jobs.control import JobControl, control_at_submission
from carpool.daemon.jobs.table import Ended, JobRecord
from carpool.daemon.journal.device_times import DeviceTimes, read_device_times
from carpool.daemon.journal.quarantine import Raw, sound_rows
from carpool.daemon.journal.records import CONTROL, USE, SeatUse, log_name
from carpool.daemon.journal.row_types import AttemptRow, JobRow, MetaRow, PlacementOfJob
from carpool.protocol.api import SubmitRequest

_ZEROS = ("last", "ended_us", "out_of_memory", "outgrown_bytes", "persistent_bytes", "ephemeral_bytes")


def read_devices(connection: sqlite3.Connection) -> dict[JobId, tuple[DeviceId, ...]]:
    """Read all devices of the jobs that have been given several, their own first."""
    decode = msgspec.json.Decoder(tuple[DeviceId, ...]).decode

    def devices_of(row: PlacementOfJob) -> tuple[JobId, tuple[DeviceId, ...]]:
        return row.job, decode(row.devices)

    several = "WHERE devices LIKE '%,%' OR typeof(devices) != 'text'"
    return dict(sound_rows(connection, "placements", PlacementOfJob, devices_of, several))


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
        job.other_devices = placed.get(job.id, ())[1:]
        job.control = controls.get(job.id, job.control)
        earlier = attempts.get(job.id)
        if earlier:
            had(job, earlier)
        _with_times(job, times.get(job.id, DeviceTimes()))
        use = uses.get(job.id)
        job.was_seated = use is not None and use.attempt == job.attempt and use.was_seated
        yield job


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
        job.other_devices = ()


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
        *(row.id, row.owner, row.gid, request),
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
