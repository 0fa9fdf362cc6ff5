"""Moments of live jobs are on the wall clock, and keep their distance from now when that clock is set.

People and network time daemons set clocks; durations are those of the monotonic clock.  So what the journal has of jobs
that have not ended is written anew whenever the two clocks have moved against each other, and the distance between them
is in the journal, too: the next daemon finds a step that happened meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from carpool.core.model import Micros
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal import device_times
from carpool.daemon.journal.boot_record import WALL_AHEAD
from carpool.daemon.journal.records import control_row
from carpool.daemon.journal.writer import Journal, Statement

_META = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
_JOB = "UPDATE jobs SET submitted_us = ?, started_us = ? WHERE id = ?"
_ATTEMPT = "UPDATE attempts SET started_us = ?, ended_us = ? WHERE job = ? AND attempt = ?"


def read_wall_ahead(connection: sqlite3.Connection) -> Micros | None:
    """Return the recorded distance; None: the journal is new."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (WALL_AHEAD,)).fetchone()
    return int(row[0]) if row is not None and str(row[0]).lstrip("-").isdecimal() else None


class MomentRecord:
    """Records the moments of jobs."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def write(self, ahead_us: Micros, jobs: Collection[JobRecord]) -> None:
        """Record all moments or none.  ``ahead_us``: how far the wall clock is ahead of the monotonic one."""
        also: list[Statement] = [
            (_JOB, [(job.submitted_us, job.started_us, job.id) for job in jobs]),
            (_ATTEMPT, [row for job in jobs for row in _attempts(job)]),
            (_META, [control_row(job) for job in jobs]),
        ]
        also += [statement for job in jobs for statement in device_times.statement(job)]
        self._journal.owe(_META, [(WALL_AHEAD, str(ahead_us))], also=also)


def _attempts(job: JobRecord) -> list[tuple[Micros | None, Micros, int, int]]:
    return [(ended.started_us, ended.ended_us, job.id, number) for number, ended in enumerate(job.past, 1)]
