"""Telemetry of devices and use by users, as series of the history.

*Devices*: every sample of the last minutes is in memory, minutes and hours are in the journal.  A minute is written
when the next one begins, and when the daemon stops: a daemon that is killed loses at most one.  Rows of the same minute
or hour add up, so neither a restart nor a clock that is set back counts anything twice.

*Users*: use is added to in the transaction in which an attempt or a job ends.  These rows outlive the jobs that they
are made of, so `carpool clean` takes nothing from them.  What an attempt used is known as one sum, which is spread
evenly over the time for which the attempt ran.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from carpool.core.model import DeviceId, Micros, Outcome
from carpool.daemon.jobs.control import attempt_us
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.history import (
    DAY,
    HOUR,
    MINUTE,
    NOBODY,
    HistoryRow,
    HistorySeries,
    Level,
    additions,
    spoilt,
    stored_rows,
)
from carpool.daemon.journal.rows import Amount, read_only
from carpool.daemon.journal.writer import Journal, Statement
from carpool.daemon.system.clock import day_of, spread
from carpool.telemetry.samples import RollupSpan, Sample, Spans, add, begin, spans_of

#: Samples in memory: ten minutes at ten in a second.
RECENT_US: Micros = 10 * MINUTE
RECENT = 6000
#: Of a span: far more than an hour has.
MOST_SAMPLES, MOST_TOTAL = 2**32, 2**60
_spans_in = msgspec.msgpack.Decoder(Spans).decode
_BUSY = f"""SELECT coalesce(busy_time(number, value), '[0,0]') FROM history
  WHERE series = :series AND key = :key AND owner = {NOBODY} AND step_us IN ({MINUTE}, {HOUR})
  AND end_us > :since AND end_us < :until + {HOUR} AND begin_us >= :since AND begin_us < :until
  AND typeof(value) = 'blob'"""


class BusyTime(NamedTuple):
    """The sum of samples of how busy a device was with jobs, and their number."""

    total_ppm: int = 0
    samples: int = 0

    @property
    def mean_ppm(self) -> int | None:
        """The share of time in which the device computed for jobs; None: nothing is known."""
        return round(self.total_ppm / self.samples) if self.samples else None

    def with_(self, span: RollupSpan | None) -> BusyTime:
        """Return the sums of both together."""
        return self if span is None else BusyTime(self.total_ppm + span.total, self.samples + span.samples)


class _BusyQuantity(msgspec.Struct, frozen=True):
    """Spans of which only this quantity is decoded."""

    jobs_busy_ppm: RollupSpan | None = None


_busy_quantity_in = msgspec.msgpack.Decoder(_BusyQuantity).decode
_busy_time_in = msgspec.json.Decoder(BusyTime).decode


class _BusyTimeOfRows:
    """Function of SQL that adds up rows; its value is a `BusyTime` as JSON."""

    def __init__(self) -> None:
        self._total_ppm = self._samples = 0

    def step(self, number: int, value: bytes) -> None:
        """Add a row."""
        span = _busy_span(number, value)
        if span is not None:
            self._total_ppm += span.total
            self._samples += span.samples

    def finalize(self) -> str:
        """Return the sums of all rows."""
        return msgspec.json.encode((self._total_ppm, self._samples)).decode()


class DeviceHistory:
    """The telemetry of all devices.  Times are the wall clock's."""

    def __init__(self, journal: Journal, path: Path) -> None:
        self._journal = journal
        self._path = path
        self._recent: dict[DeviceId, deque[tuple[Micros, Sample]]] = {}
        self._open: dict[DeviceId, tuple[Micros, Spans]] = {}

    def add(self, device: DeviceId, now: Micros, sample: Sample) -> None:
        recent = self._recent.setdefault(device, deque(maxlen=RECENT))
        recent.append((now, sample))
        while recent[0][0] < now - RECENT_US:
            recent.popleft()
        minute = begin(now, MINUTE)
        if device in self._open and self._open[device][0] != minute:
            self._write(device)
        add(self._open.setdefault(device, (minute, {}))[1], spans_of(sample))

    def close(self) -> None:
        """Hand the minutes that have begun to the journal."""
        for device in list(self._open):
            self._write(device)

    def recent(self, device: DeviceId) -> list[tuple[Micros, Sample]]:
        """Return all samples in memory, oldest first."""
        return list(self._recent.get(device, ()))

    def opened(self, device: DeviceId) -> tuple[Micros, Spans] | None:
        """Return a copy of the minute that has begun, which is not in the journal yet."""
        known = self._open.get(device)
        return None if known is None else (known[0], dict(known[1]))

    async def written(self) -> None:
        """Wait until everything that has been handed to the journal is on the disk."""
        await self._journal.flushed()

    def stored(self, device: DeviceId, step: Micros, since: Micros, until: Micros) -> list[tuple[Micros, Spans]]:
        """Read the parts that fit into a step, without those not written yet; for a thread: reads the disk."""
        with read_only(self._path) as connection:
            rows = stored_rows(connection, DEVICES.name, since, until + 1, key=device)
            return list(_parts(row for row in rows if row.step_us <= step and row.begin_us >= since))

    def busy_times(self, device: DeviceId, bounds: Sequence[Micros]) -> list[BusyTime]:
        """Add up how busy the device was between each two bounds, without the minute that has begun; for a thread.

        SQLite adds up, and only one quantity is decoded: a week has 10,000 minutes.
        """
        place = {"series": DEVICES.name, "key": device}
        with read_only(self._path) as connection:
            connection.create_aggregate("busy_time", 2, _BusyTimeOfRows)  # type: ignore[arg-type]
            connection.execute("BEGIN")  # minutes may become an hour meanwhile
            stretches = [place | {"since": since, "until": until} for since, until in pairwise(bounds)]
            return [_busy_time_in(connection.execute(_BUSY, each).fetchone()[0]) for each in stretches]

    def _write(self, device: DeviceId) -> None:
        minute, spans = self._open.pop(device)
        if spans:
            row = HistoryRow(0, device, NOBODY, MINUTE, minute, minute + MINUTE, msgspec.msgpack.encode(spans))
            self._journal.owe(*additions(DEVICES.name, [row]), droppable=True)


def _parts(rows: Iterator[HistoryRow]) -> Iterator[tuple[Micros, Spans]]:
    """Yield the begins and spans of the rows that can be read."""
    for row in rows:
        try:
            spans = _spans_in(row.value)
        except msgspec.MsgspecError:
            spans = {}
        if spans and all(map(_sound_span, spans.values())):
            yield row.begin_us, spans
        else:
            spoilt(row.number)


def _busy_span(number: int, value: bytes) -> RollupSpan | None:
    """Return the one quantity of a row; None: the row has none, or makes no sense, and is left out."""
    try:
        span = _busy_quantity_in(value).jobs_busy_ppm
        if span is None or _sound_span(span):
            return span
    except msgspec.MsgspecError:
        pass
    spoilt(number)
    return None


def _sound_span(span: RollupSpan) -> bool:
    """Whether the span can have been; sums of many such spans can still be written."""
    whole = span.least * span.samples <= span.total <= span.most * span.samples
    return whole and 0 < span.samples <= MOST_SAMPLES and abs(span.total) <= MOST_TOTAL


def _merge_minutes(rows: Sequence[HistoryRow], level: Level) -> bytes | None:
    """Return the spans of minutes as those of their hour."""
    found: Spans = {}
    for _, spans in _parts(iter(rows)):
        add(found, spans)
    found = {name: span for name, span in found.items() if _sound_span(span)}
    return msgspec.msgpack.encode(found) if found else None


MINUTES_KEPT: Micros = 7 * DAY  # then hours take their place
DEVICES = HistorySeries("device", 90 * DAY, (Level(MINUTES_KEPT, HOUR, HOUR),), _merge_minutes)


KEPT_DAYS = 400
LONGEST: Micros = KEPT_DAYS * DAY
RETRIED = ""  # in place of an outcome: of attempts after which another one followed
_OUTCOMES = frozenset({RETRIED, *(outcome.value for outcome in Outcome)})
_EPOCH = date(1970, 1, 1).toordinal()
_sums_in = msgspec.json.Decoder(tuple[Amount, Amount, Amount]).decode


class DailyUse(NamedTuple):
    """The use by jobs of a user on a day.

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


def use_of_failed(job: JobRecord) -> Statement:
    """Return the statement for a failed attempt.  ``job``: as it is before its next attempt."""
    past = job.past[-1]
    started = past.ended_us if past.started_us is None else past.started_us
    use = AttemptUse(job.owner, RETRIED, past.device_us, job.spec.gpus, started, past.ended_us)
    return additions(USE.name, map(_row, use.rows()))


def use_of_ended(job: JobRecord) -> Statement:
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
            return DailyUse(day, row.owner, row.key, *_sums_in(row.value))
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


def _merge_days(rows: Sequence[HistoryRow], level: Level) -> bytes | None:
    """Return the sums of one user's rows of a day with one outcome."""
    found = _summed(use for row in rows if (use := _use(row)) is not None)
    return _row(found[0]).value if found else None


#: Rows are added up when their day is over.
USE = HistorySeries("use", LONGEST, (Level(DAY, DAY, DAY),), _merge_days)
