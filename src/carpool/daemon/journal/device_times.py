"""Device times that are not in the rows of jobs and attempts: of failed attempts, and of jobs found to be exclusive."""

from __future__ import annotations

import sqlite3

import msgspec

from carpool.core.commands import Command
from carpool.core.events import Event, TraitsSeen
from carpool.core.model import JobId, Micros
from carpool.daemon.jobs.device_time import NEVER_ALONE, AloneTime
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.quarantine import sound_rows
from carpool.daemon.journal.row_types import Count, MetaRow
from carpool.daemon.journal.writer import Journal, Statement

KEY = "device_time:"  # before the job's number, in the journal's table `meta`
_WRITE = "INSERT OR REPLACE INTO meta VALUES (?, ?)"


class DeviceTimes(msgspec.Struct, frozen=True):
    """Times of one job.  ``past``: of each past attempt, on one device; ``alone``: of the present, or last, attempt."""

    past: tuple[Count, ...] = ()
    alone: AloneTime = NEVER_ALONE


def statement(job: JobRecord) -> list[Statement]:
    """Return the statement to record a job's times; none for the usual job, started once and sharing its device."""
    past, alone = tuple(ended.device_us for ended in job.past), _closed(job)
    if not past and alone == NEVER_ALONE:
        return []
    return [(_WRITE, [(f"{KEY}{job.id}", msgspec.json.encode(DeviceTimes(past, alone)).decode())])]


def _closed(job: JobRecord) -> AloneTime:
    """Return the job's exclusive time, closed if the job has ended and so no longer holds its device."""
    return job.alone if job.ended_us is None else job.alone.told(False, job.ended_us, job.usage.device_us)


def read_device_times(connection: sqlite3.Connection) -> dict[JobId, DeviceTimes]:
    """Read the times by job; the usual job has none."""
    decode = msgspec.json.Decoder(DeviceTimes).decode

    def of_row(row: MetaRow) -> tuple[JobId, DeviceTimes]:
        return int(row.key.removeprefix(KEY)), decode(row.value)

    return dict(sound_rows(connection, "meta", MetaRow, of_row, f"WHERE key LIKE '{KEY}%'"))


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
            for sql, rows in statement(job):
                self._journal.owe(sql, rows)
