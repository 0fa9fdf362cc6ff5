"""The event stream: every event and command of the core in order, to the journal and to listeners; and removal.

Entries get their number when they are recorded; they reach the journal in batches, a moment later, in order, and before
they are shown to any listener: a number that was seen stands for the same entry after a crash.  Surplus events are
removed from the users who have most, so that no user's events push the history of others out; events of no job have a
share of their own, and so have those of jobs that have been removed.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import fields
from pathlib import Path

import msgspec

from carpool.core import commands, events
from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import JobId, Micros, given
from carpool.daemon.journal.records import DEVICE_TIME
from carpool.daemon.journal.rows import LARGEST_NUMBER, EventNumber, read_only, sound_rows
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import JournalFull
from carpool.daemon.system.peer import person_of
from carpool.facts.fold import FREQUENT
from carpool.protocol.api import EventInfo

log = logging.getLogger(__name__)
#: Deletes an event that has been chosen.
DELETE_EVENT = "DELETE FROM events WHERE seq = ?"
NO_JOB, REMOVED = -1, -2
_COUNT_OF_KIND = "SELECT count(*) FROM events WHERE ring = ?"
_SHARES = f"""CREATE TEMP TABLE shares AS
  SELECT job, CASE WHEN job IS NULL THEN {NO_JOB} ELSE coalesce(owner, {REMOVED}) END AS person
  FROM (SELECT DISTINCT job FROM events WHERE ring = ?) LEFT JOIN jobs ON id = job"""
#: The newest event of each person has place 1: the largest place is the oldest event of the person with most events.
#: The event of a job's submission stays until that job has ended, and so does the last event: numbers go on from there.
_CHOSEN = """SELECT seq FROM
  (SELECT seq, kind, job, row_number() OVER (PARTITION BY person ORDER BY seq DESC) AS place
   FROM (SELECT seq, kind, events.job, person FROM events JOIN shares ON shares.job IS events.job WHERE ring = ?))
  WHERE seq < (SELECT max(seq) FROM events)
    AND NOT (kind = 'Submitted' AND job IN (SELECT id FROM jobs WHERE phase != 'ended'))
  ORDER BY place DESC, seq LIMIT ?"""


def excess(path: Path, most: int, *, frequent: bool) -> list[tuple[int]]:
    """Return the numbers of surplus events, as rows: without them ``most`` are left.  ``frequent``: which kinds.

    Reads the journal's file for a while.  Raises sqlite3.Error.
    """
    with read_only(path) as connection:
        (count,) = connection.execute(_COUNT_OF_KIND, (frequent,)).fetchone()
        if count <= most:
            return []
        connection.execute(_SHARES, (frequent,))
        owners = [owner for (owner,) in connection.execute("SELECT DISTINCT person FROM shares WHERE person >= 0")]
        persons = [(person, owner) for owner in owners if (person := person_of(owner)) != owner]
        connection.executemany("UPDATE shares SET person = ? WHERE person = ?", persons)
        return connection.execute(_CHOSEN, (frequent, count - most)).fetchall()


#: Frequent kinds, and those that a job can cause at will: the journal keeps `RING_ROWS` of them.
RING_KINDS = FREQUENT | {
    kind.__name__
    for kind in (
        *(events.Sampled, events.Tick, events.DeviceLoad),
        *(events.HostMeasured, events.PaceKnown, events.UseKnown),  # the last two: many at every start
        *(commands.PlaceWeights, commands.DropWeights),
        *(events.MemoryRequested, events.RequestWithdrawn, events.MemoryReturned, events.Detached),
        *(events.Offloaded, events.OffloadFailed, events.TraitsSeen),
        *(commands.GrantMemory, commands.DenyMemory, commands.ResizeLane, commands.Offload),
        *(commands.PinStore, commands.DropStore),
    )
}
RING_ROWS = 200_000
RECENT = 20_000  # entries in memory, for listeners that keep up
FLUSH_S = 0.1
FLUSH_ROWS = 1000
PRUNE_EVERY = 20_000  # events
PAGE_ROWS = 2000

_INSERT = "INSERT INTO events (seq, wall_us, now_us, kind, job, ring, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
_SELECT = "SELECT seq, wall_us, now_us, kind, job, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
_BACKWARDS = "SELECT seq, wall_us, now_us, kind, job, data FROM events WHERE seq < ? ORDER BY seq DESC LIMIT ?"


class LogEntry(msgspec.Struct, frozen=True):
    """An event or command as it is in the journal; ``now_us`` is the core's time, ``wall_us`` that of people."""

    seq: int
    wall_us: int
    now_us: int
    kind: str
    job: int | None
    data: bytes

    def line(self) -> bytes:
        """Return one line of GET /v1/events: an `EventInfo`."""
        fields = (self.seq, self.wall_us, self.now_us, self.kind, self.job, msgspec.Raw(self.data))
        return msgspec.json.encode(dict(zip(EventInfo.__struct_fields__, fields, strict=True))) + b"\n"


def encoded(happened: Event | Command) -> bytes:
    """Encode an event or command; of what was submitted only what differs from the defaults."""
    if not isinstance(happened, events.Submitted | events.JobChanged):
        return msgspec.json.encode(happened)
    values = {part.name: getattr(happened, part.name) for part in fields(happened)}
    return msgspec.json.encode(values | {"spec": given(happened.spec)})


class Feed:
    """Records what the core is told and what it decides, in batches, and lets clients follow."""

    def __init__(
        self,
        journal: Journal,
        path: Path,
        last_seq: int,
        heard: Sequence[Callable[[int, Event | Command], None]] = (),
    ) -> None:
        """``heard``: functions that are called with everything that is recorded, with the core's time."""
        self._journal = journal
        self._heard = heard
        self._path = path
        self._seq = last_seq
        self._recent: deque[LogEntry] = deque(maxlen=RECENT)
        self._pending: list[tuple[object, ...]] = []
        self._flush_timer: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self._pruned = self._written = last_seq
        self._pruning: asyncio.Task[None] | None = None
        self._closed = False

    def record(self, now_us: int, happened: Event | Command) -> None:
        """Record an event or command, encoded so that it can be rebuilt from the journal."""
        kind = type(happened).__name__
        job = getattr(happened, "job", None)
        self._seq += 1
        entry = LogEntry(self._seq, wall_us(), now_us, kind, job, encoded(happened))
        self._recent.append(entry)
        ring = int(kind in RING_KINDS)
        self._pending.append((entry.seq, entry.wall_us, now_us, kind, job, ring, entry.data.decode()))
        if len(self._pending) >= FLUSH_ROWS:
            self.flush()
        elif self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
        self._news.set()
        for hear in self._heard:
            hear(now_us, happened)

    @property
    def last_seq(self) -> int:
        """The number of the last entry that has been recorded."""
        return self._seq

    def flush(self) -> None:
        """Hand everything recorded so far to the journal."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._pending:
            self._journal.owe(_INSERT, self._pending, droppable=True)
            self._pending = []
        if self._seq - self._pruned >= PRUNE_EVERY:
            self._begin_pruning()

    def _begin_pruning(self) -> None:
        """Begin to prune, unless an earlier pruning still runs, or the feed is closed."""
        if not self._closed and (self._pruning is None or self._pruning.done()):
            self._pruned = self._seq
            self._pruning = asyncio.create_task(self._prune())

    async def _prune(self) -> None:
        try:
            more = await asyncio.to_thread(excess, self._path, RING_ROWS, frequent=True)
        except sqlite3.Error as error:
            log.warning("cannot look for old events to remove: %s", error)
            return
        for first in range(0, len(more), FLUSH_ROWS):
            self._journal.owe(DELETE_EVENT, more[first : first + FLUSH_ROWS])

    def close(self) -> None:
        """Write what is pending and end all streams."""
        self._closed = True
        if self._pruning is not None:
            self._pruning.cancel()
        self.flush()
        self._news.set()

    async def written(self) -> int:
        """Return the number up to which everything is in the journal.  Raises JournalFull when the disk is full."""
        wanted = self._seq
        if wanted > self._written and not self._closed:
            self.flush()
            await self._journal.flushed()
            self._written = max(self._written, wanted)
        return wanted

    async def entries(self, since: int, follow: bool) -> AsyncIterator[LogEntry]:
        """Yield what was recorded after number ``since``; with ``follow`` until the daemon stops."""
        async for page in self.pages(since, follow):
            for entry in page:
                yield entry

    async def pages(
        self, since: int, follow: bool, aside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    ) -> AsyncIterator[list[LogEntry]]:
        """Yield the same as `entries`, many at once.  ``aside``: entered while there is nothing new."""
        since = min(since, self._seq)
        while True:
            shown = await self._to_be_shown()
            before = since
            async for page in self._stored(since):
                since = page[-1].seq
                yield page
            if since > before and self._outpaced(since):
                continue
            if page := self._after(since, shown):
                since = page[-1].seq
                yield page
            if not follow or self._closed:
                return
            if since == self._seq:
                # All listeners wait on one event object; a listener that finds nothing new clears it.
                self._news.clear()
                async with aside():
                    await self._news.wait()

    async def backwards(self, before: int) -> AsyncGenerator[LogEntry, None]:
        """Yield what was recorded before number ``before``, the newest first."""
        shown = await self._to_be_shown()
        for entry in reversed(self._after(0, min(shown, before - 1))):
            before = entry.seq
            yield entry
        while page := await asyncio.to_thread(self._page, before, _BACKWARDS):
            for entry in page:
                yield entry
            before = page[-1].seq

    async def _to_be_shown(self) -> int:
        """Return the last number that listeners may see: the journal's last, or the newest while the disk is full."""
        try:
            return await self.written()
        except JournalFull:
            return self._seq

    def _after(self, since: int, last: int) -> list[LogEntry]:
        """Return the entries in memory after ``since``, as far as ``last``."""
        if not self._recent:
            return []
        first = self._recent[0].seq
        return list(self._recent)[max(0, since + 1 - first) : max(0, last + 1 - first)]

    async def _stored(self, since: int) -> AsyncIterator[list[LogEntry]]:
        """Yield the entries that only the journal still holds, page by page."""
        while self._outpaced(since):
            await self.written()
            page = await asyncio.to_thread(self._page, since, _SELECT)
            if page:
                yield page
            if len(page) < PAGE_ROWS:
                return
            since = page[-1].seq

    def _outpaced(self, since: int) -> bool:
        """Whether entries right after ``since`` are no longer in memory."""
        return since < self._seq and (not self._recent or self._recent[0].seq > since + 1)

    def _page(self, number: int, query: str) -> list[LogEntry]:
        with read_only(self._path) as connection:
            rows = connection.execute(query, (number, PAGE_ROWS)).fetchall()
        return [LogEntry(seq, wall, now, kind, job, data.encode()) for seq, wall, now, kind, job, data in rows]


def last_seq(connection: sqlite3.Connection) -> int:
    """Return the number of the last entry; 0 in an empty journal.  Entries with impossible numbers are set aside."""
    rest = f"WHERE seq > {LARGEST_NUMBER}"
    strange = list(sound_rows(connection, "events", EventNumber, lambda row: row, rest))
    assert not strange, "numbers as large as that are never read"
    return int(connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])


EVENTS_AT_ONCE = 500
_JOBS = (
    "DELETE FROM attempts WHERE job = ?",
    "DELETE FROM placements WHERE job = ?",
    "DELETE FROM notices WHERE job = ?",
    "DELETE FROM breakdowns WHERE job = ?",
    f"DELETE FROM meta WHERE key = '{DEVICE_TIME}' || ?",
    "DELETE FROM quarantine WHERE source = 'jobs' AND job = ?",
    "DELETE FROM jobs WHERE id = ? AND phase = 'ended'",
)
#: Up to the first that is young enough, but never the last one: numbers of events go on from there.
_OLD = """SELECT coalesce((SELECT seq FROM events WHERE wall_us >= ? ORDER BY seq LIMIT 1),
  (SELECT max(seq) FROM events), 0)"""
#: The event of a job's submission stays until that job has ended: see `carpool.daemon.journal.salvage`.
_SELECTED = """seq < ?
  AND NOT (kind = 'Submitted' AND job IN (SELECT id FROM jobs WHERE phase != 'ended'))"""
_COUNT = f"SELECT count(*) FROM events WHERE {_SELECTED}"
_EVENTS = f"DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE {_SELECTED} ORDER BY seq LIMIT ?)"


class JournalRemoval:
    """Deletes rows for good.  ``path``: the journal's file, which is read beside its writer."""

    def __init__(self, journal: Journal, path: Path) -> None:
        self._journal = journal
        self._path = path

    async def jobs(self, numbers: Sequence[JobId]) -> None:
        """Remove jobs and all rows about them; the last statement deletes the jobs themselves.

        Raises JournalFull, sqlite3.Error; then jobs may be left without the rest.
        """
        rows = [(number,) for number in numbers]
        await asyncio.gather(*(self._journal.durable(sql, *rows) for sql in _JOBS))

    async def events(self, before: Micros, most: int) -> int:
        """Remove events from before a moment of the wall clock, and surplus events; return how many.

        ``most``: events that are not of frequent kinds, which have a limit of their own.  Raises JournalFull,
        sqlite3.Error.
        """
        first_kept, count = await asyncio.to_thread(self._old_events, before)
        for _ in range(0, count, EVENTS_AT_ONCE):
            await self._journal.durable(_EVENTS, (first_kept, EVENTS_AT_ONCE))
        more = await asyncio.to_thread(excess, self._path, most, frequent=False)
        for first in range(0, len(more), EVENTS_AT_ONCE):
            await self._journal.durable(DELETE_EVENT, *more[first : first + EVENTS_AT_ONCE])
        return count + len(more)

    def _old_events(self, before: Micros) -> tuple[int, int]:
        with read_only(self._path) as connection:
            (first_kept,) = connection.execute(_OLD, (before,)).fetchone()
            (count,) = connection.execute(_COUNT, (first_kept,)).fetchone()
        return first_kept, count
