"""Daily use of jobs per user, added to in the transaction in which an attempt or a job ends.

The rows outlive the jobs that they are made of, so `carpool clean` takes nothing from the history.  What an attempt
used is known as one sum, which is spread evenly over the time for which the attempt ran.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from carpool.core.model import Micros
from carpool.daemon.jobs.device_time import attempt_us
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.row_types import DailyUseRow
from carpool.daemon.journal.writer import Statement
from carpool.daemon.system.clock import day_after, day_of, spread

log = logging.getLogger(__name__)
KEPT_DAYS = 400
LONGEST: Micros = KEPT_DAYS * 86_400_000_000
RETRIED = ""  # in the column `outcome`: of attempts after which another one followed
TABLES = """
CREATE TABLE IF NOT EXISTS daily_use (
  day TEXT NOT NULL,           -- local date
  owner INTEGER NOT NULL,
  outcome TEXT NOT NULL,       -- of the job; empty: of attempts after which another one followed
  device_us INTEGER NOT NULL,  -- device time, for each device of a job
  jobs INTEGER NOT NULL,       -- that ended on the day
  waited_us INTEGER NOT NULL,  -- of these: the time in which no attempt ran
  PRIMARY KEY (day, owner, outcome)
) WITHOUT ROWID;
"""
_ADD = """INSERT INTO daily_use VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
  device_us = device_us + excluded.device_us, jobs = jobs + excluded.jobs, waited_us = waited_us + excluded.waited_us"""
_FORGET = "DELETE FROM daily_use WHERE day < ?"
_SELECT = """SELECT day, owner, outcome, device_us, jobs, waited_us FROM daily_use
  WHERE day BETWEEN ? AND ? AND (? IS NULL OR owner = ?) ORDER BY day, owner, outcome LIMIT ?"""

#: Day, owner, outcome, device time, jobs, and how long these waited.
Added = tuple[str, int, str, Micros, int, Micros]


class AttemptUse(msgspec.Struct, frozen=True):
    """An attempt that has ended, or that runs.  ``device_us``: of one device.  Times are the wall clock's."""

    owner: int
    outcome: str
    device_us: Micros
    gpus: int
    started_us: Micros
    ended_us: Micros

    def parts(self) -> dict[str, Micros]:
        """Return device time by day; the journal's figure counts only up to the time for which the attempt ran."""
        begin, ran_us = max(self.started_us, self.ended_us - LONGEST), max(0, self.ended_us - self.started_us)
        return spread(min(self.device_us, ran_us) * self.gpus, begin, self.ended_us)

    def rows(self) -> list[Added]:
        return [(day, self.owner, self.outcome, part, 0, 0) for day, part in self.parts().items()]


class DailyUse:
    """Makes the statements that are written with the ends of attempts and jobs."""

    def __init__(self) -> None:
        self._pruned = ""  # day on which old rows were last removed

    def of_failed(self, job: JobRecord) -> list[Statement]:
        """Return the statements for a failed attempt.  ``job``: as it is before its next attempt."""
        past = job.past[-1]
        started = past.ended_us if past.started_us is None else past.started_us
        use = AttemptUse(job.owner, RETRIED, past.device_us, job.spec.gpus, started, past.ended_us)
        return self._statements(use.rows(), past.ended_us)

    def of_ended(self, job: JobRecord) -> list[Statement]:
        """Return the statements for the last attempt of a job and for the job's end."""
        assert job.outcome is not None
        outcome, ended = job.outcome.value, job.submitted_us if job.ended_us is None else job.ended_us
        use = running(job, ended, outcome)
        return self._statements([_end(job, outcome, ended), *(use.rows() if use else [])], ended)

    def _statements(self, rows: Sequence[Added], now: Micros) -> list[Statement]:
        today = day_of(now)
        if today <= self._pruned:
            return [(_ADD, rows)]
        self._pruned = today
        return [(_ADD, rows), (_FORGET, [(day_after(today, -KEPT_DAYS),)])]


def running(job: JobRecord, now: Micros, outcome: str = RETRIED) -> AttemptUse | None:
    """Return the use of a job's present attempt until now; None: the attempt has not begun."""
    if job.started_us is None:
        return None
    return AttemptUse(job.owner, outcome, attempt_us(job, now), job.spec.gpus, job.started_us, now)


def _end(job: JobRecord, outcome: str, ended: Micros) -> Added:
    """Return the row for a job's end, with the time in which no attempt ran, as `carpool history` counts that."""
    times = [(past.started_us, past.ended_us) for past in job.past] + [(job.started_us, ended)]
    ran_us = sum(max(0, until - since) for since, until in times if since is not None)
    return (day_of(ended), job.owner, outcome, 0, 1, max(0, ended - job.submitted_us - ran_us))


def stored(path: Path, first: str, last: str, owner: int | None, most: int) -> list[DailyUseRow]:
    """Read the rows of these days, of one user if one is named; for a thread: reads the disk.

    One row more than ``most`` means that there are too many.  Raises sqlite3.Error.
    """
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.text_factory = lambda data: data.decode(errors="replace")
        rows = connection.execute(_SELECT, (first, last, owner, owner, most + 1)).fetchall()
    return list(_sound(rows))


def _sound(rows: Iterable[tuple[object, ...]]) -> Iterator[DailyUseRow]:
    """Yield the rows that can be read, and leave the others out."""
    spoilt = 0
    for values in rows:
        try:
            yield msgspec.convert(dict(zip(DailyUseRow.__struct_fields__, values, strict=True)), DailyUseRow)
        except msgspec.ValidationError:
            spoilt += 1
    if spoilt:
        log.warning("the journal has %d rows about use that make no sense; they are left out", spoilt)
