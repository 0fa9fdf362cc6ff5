"""Everything that a daemon reads of its journal at the start, read in one go and in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import dataclass

import msgspec

from carpool.core.events import PaceKnown, UseKnown
from carpool.core.model import JobId, Settings
from carpool.daemon.config.options import DeviceOption
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.boot_record import read_boot_id
from carpool.daemon.journal.core_figures import read_figures
from carpool.daemon.journal.event_log import last_seq
from carpool.daemon.journal.losses import Acknowledged, lost_jobs, record_losses
from carpool.daemon.journal.model_registry import RegisteredModel, read_models
from carpool.daemon.journal.moments import read_wall_ahead
from carpool.daemon.journal.notice import journal_notice
from carpool.daemon.journal.notices import read_notices
from carpool.daemon.journal.quarantine import in_one_transaction, quarantined_jobs, sound_rows
from carpool.daemon.journal.records import INSERT_JOB, Runs, job_row, read_history, read_unsuspendable
from carpool.daemon.journal.row_types import MetaRow, NoticeRow
from carpool.daemon.journal.schema import broken
from carpool.daemon.journal.stand_ins import stand_ins
from carpool.daemon.journal.stored_jobs import had, read_attempts, read_jobs
from carpool.daemon.journal.wal import WalDamage
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.system.errors import StartupError
from carpool.protocol.paths import Home


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
    found = list(stand_ins(connection, privileges, home, known))
    attempts = read_attempts(connection) if found else {}
    for job in found:
        if job.id in attempts:
            had(job, attempts[job.id])
    connection.executemany(INSERT_JOB, map(job_row, found))
    return found
