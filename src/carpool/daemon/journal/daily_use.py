"""Daily use of jobs per user, added to in the transaction in which an attempt or a job ends.

The rows of this series of the history outlive the jobs that they are made of, so `carpool clean` takes nothing from
them.  What an attempt used is known as one sum, which is spread evenly over the time for which the attempt ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carpool.core.model import Micros, Outcome
from carpool.daemon.jobs.device_time import attempt_us
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.history import (
    DAY,
    HistoryRow,
    HistorySeries,
    Level,
    additions,
    read_only,
    spoilt,
    stored_rows,
)
from carpool.daemon.journal.writer import Statement
from carpool.daemon.system.clock import day_of, spread

KEPT_DAYS = 400
LONGEST: Micros = KEPT_DAYS * DAY
RETRIED = ""  # in place of an outcome: of attempts after which another one followed
_OUTCOMES = frozenset({RETRIED, *(outcome.value for outcome in Outcome)})
_EPOCH = date(1970, 1, 1).toordinal()
_Amount = Annotated[int, Meta(ge=0)]
_decode = msgspec.json.Decoder(tuple[_Amount, _Amount, _Amount]).decode


class DailyUse(NamedTuple):
    """What jobs of a user have used on a day.

    ``outcome``: of the jobs; ``device_us``: for each device of a job; ``jobs``: that ended on the day; ``waited_us``:
    of these, the time in which no attempt ran.
    """

    day: str
    owner: int
    outcome: str
    device_us: Micros
    jobs: int
    waited_us: Micros


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

    def rows(self) -> list[DailyUse]:
        return [DailyUse(day, self.owner, self.outcome, part, 0, 0) for day, part in self.parts().items()]


def of_failed(job: JobRecord) -> Statement:
    """Return the statement for a failed attempt.  ``job``: as it is before its next attempt."""
    past = job.past[-1]
    started = past.ended_us if past.started_us is None else past.started_us
    use = AttemptUse(job.owner, RETRIED, past.device_us, job.spec.gpus, started, past.ended_us)
    return additions(USE.name, map(_row, use.rows()))


def of_ended(job: JobRecord) -> Statement:
    """Return the statement for the last attempt of a job and for the job's end."""
    assert job.outcome is not None
    outcome, ended = job.outcome.value, job.submitted_us if job.ended_us is None else job.ended_us
    use = running(job, ended, outcome)
    return additions(USE.name, map(_row, [_end(job, outcome, ended), *(use.rows() if use else [])]))


def running(job: JobRecord, now: Micros, outcome: str = RETRIED) -> AttemptUse | None:
    """Return the use of a job's present attempt until now; None: the attempt has not begun."""
    if job.started_us is None:
        return None
    return AttemptUse(job.owner, outcome, attempt_us(job, now), job.spec.gpus, job.started_us, now)


def stored(path: Path, first: str, last: str, owner: int | None) -> list[DailyUse]:
    """Read the use of these days, of one user if one is named; for a thread: reads the disk.  Raises sqlite3.Error."""
    with read_only(path) as connection:
        rows = stored_rows(connection, USE.name, _begin(first), _begin(last) + 1, owner=owner)
        return _summed(use for row in rows if (use := _use(row)) is not None)


def _end(job: JobRecord, outcome: str, ended: Micros) -> DailyUse:
    """Return the use for a job's end, with the time in which no attempt ran, as `carpool history` counts that."""
    times = [(past.started_us, past.ended_us) for past in job.past] + [(job.started_us, ended)]
    ran_us = sum(max(0, until - since) for since, until in times if since is not None)
    return DailyUse(day_of(ended), job.owner, outcome, 0, 1, max(0, ended - job.submitted_us - ran_us))


def _begin(day: str) -> Micros:
    """Return the bin of a local date: the date's midnight in UTC, whatever the time zone is or becomes."""
    return (date.fromisoformat(day).toordinal() - _EPOCH) * DAY


def _row(use: DailyUse) -> HistoryRow:
    begin, value = _begin(use.day), msgspec.json.encode((use.device_us, use.jobs, use.waited_us))
    return HistoryRow(0, use.outcome, use.owner, 0, begin, begin, value)


def _use(row: HistoryRow) -> DailyUse | None:
    """Return what a row says; None: it makes no sense, and is left out."""
    try:
        day = date.fromordinal(row.begin_us // DAY + _EPOCH).isoformat()
        if row.key in _OUTCOMES and row.owner >= 0:
            return DailyUse(day, row.owner, row.key, *_decode(row.value))
    except (msgspec.MsgspecError, ValueError, OverflowError):
        pass
    spoilt(row.number)
    return None


def _summed(uses: Iterable[DailyUse]) -> list[DailyUse]:
    """Return one use for each day, user and outcome, in this order."""
    sums: dict[tuple[str, int, str], DailyUse] = {}
    for use in uses:
        before = sums.get(use[:3], use._replace(device_us=0, jobs=0, waited_us=0))
        added = (use.device_us + before.device_us, use.jobs + before.jobs, use.waited_us + before.waited_us)
        sums[use[:3]] = DailyUse(*use[:3], *added)
    return [sums[place] for place in sorted(sums)]


def _merge(rows: Sequence[HistoryRow], level: Level) -> bytes | None:
    """Return the sums of one user's rows of a day with one outcome."""
    found = _summed(use for row in rows if (use := _use(row)) is not None)
    return _row(found[0]).value if found else None


#: Rows are added up when their day is over.
USE = HistorySeries("use", LONGEST, (Level(DAY, DAY, DAY),), _merge)
