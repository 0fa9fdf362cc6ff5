"""Records for the next daemon: this boot, moments of live jobs by the wall clock, and figures of the core.

People and network time daemons set clocks; durations are those of the monotonic clock.  So what the journal has of jobs
that have not ended is written anew whenever the two clocks have moved against each other, and the distance between them
is in the journal, too: the next daemon finds a step that happened meanwhile.

Figures of the core are slowdowns of pairs of commands and users' use: series of the journal's history with one row per
pair, or per user, that replaces the one before.  They are written whenever a job ends, and every minute: jobs may run
for weeks, and the daemon may die at any time.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import takewhile

import msgspec

from carpool.core.events import PaceKnown, UseKnown
from carpool.core.model import Micros
from carpool.core.state.slowdown_table import MOST_PAIRS, Pair
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.history import FOREVER, NOBODY, HistoryRow, HistorySeries, additions, replacements
from carpool.daemon.journal.records import control_row, device_time_statement
from carpool.daemon.journal.rows import PUT_META, Amount, HistoryColumns, Number, sound_rows
from carpool.daemon.journal.writer import Journal, Statement
from carpool.daemon.system.clock import wall_ahead_us

# Keys of the journal's table `meta`; the second one: how far the wall clock was ahead of the monotonic one.
BOOT_ID, WALL_AHEAD = "boot_id", "wall_ahead_us"


def read_boot_id(connection: sqlite3.Connection) -> str | None:
    """Return the recorded boot id; None: the journal is new, or a copy."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (BOOT_ID,)).fetchone()
    return None if row is None else str(row[0])


class BootRecord:
    """``restarted``: whether the machine has restarted since an earlier daemon wrote to the journal."""

    def __init__(self, journal: Journal, boot: str, restarted: bool) -> None:
        self._journal = journal
        self._boot = boot
        self.restarted = restarted

    def settled(self, wall_ahead_us: Micros) -> None:
        """Record this boot, after all that follows from a restart of the machine has been handed to the journal.

        ``wall_ahead_us``: of moments in the journal (`carpool.daemon.journal.restart_record`); valid in this boot only.
        """
        rows = [(BOOT_ID, self._boot), (WALL_AHEAD, str(wall_ahead_us))]
        self._journal.owe(PUT_META, rows)


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
            (PUT_META, [control_row(job) for job in jobs]),
        ]
        also += [statement for job in jobs for statement in device_time_statement(job)]
        self._journal.owe(PUT_META, [(WALL_AHEAD, str(ahead_us))], also=also)


def _attempts(job: JobRecord) -> list[tuple[Micros | None, Micros, int, int]]:
    return [(ended.started_us, ended.ended_us, job.id, number) for number, ended in enumerate(job.past, 1)]


INTERVAL_S = 60.0
PACES = HistorySeries("pace", FOREVER, most_rows=MOST_PAIRS)
USES = HistorySeries("user", FOREVER)
_FORGET = "DELETE FROM history WHERE series = ?"
#: Device time, and the iterations that took so long; a mean over nothing is none.
_pace_of = msgspec.json.Decoder(tuple[Amount, Number]).decode
_pair_of = msgspec.json.Decoder(tuple[str, str, str]).decode
_use_of = msgspec.json.Decoder(Amount).decode


class CoreFigures:
    """``paces`` and ``uses``: what the journal has, which the core is told first; of later ones, what it has itself.

    ``paces_now``: the core's pairs, the newest first.
    """

    def __init__(
        self,
        journal: Journal,
        known: tuple[Sequence[PaceKnown], Sequence[UseKnown]],
        paces_now: Callable[[], Iterable[PaceKnown]],
        uses_now: Callable[[], Iterable[UseKnown]],
    ) -> None:
        self.paces, self.uses = known
        self._journal = journal
        self._paces_now = paces_now
        self._uses_now = uses_now
        self._written = _by_pair(self.paces)
        self._used: dict[int, Micros] | None = None  # None yet: the journal's figures may be of another half-life

    async def run(self) -> None:
        """Write every minute."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.write()

    def write(self) -> None:
        """Write what has changed since the last time."""
        ahead = wall_ahead_us()
        paces = [_pace_row(pace, ahead) for pace in self._new_paces() if pace.iterations]
        if paces:
            removed, added = replacements(PACES.name, paces)
            self._journal.owe(*removed, also=[added])
        uses = self._new_uses()
        if uses is not None:
            rows = [_use_row(use, ahead) for use in uses]
            self._journal.owe(_FORGET, [(USES.name,)], also=[additions(USES.name, rows)])

    def _new_paces(self) -> list[PaceKnown]:
        """Return the new pairs, which the core names first."""
        new = list(takewhile(lambda pace: self._written.get(_pair(pace)) != pace, self._paces_now()))
        self._written |= _by_pair(new)
        if len(self._written) > 2 * MOST_PAIRS:
            self._written = _by_pair(self._paces_now())
        return new

    def _new_uses(self) -> list[UseKnown] | None:
        """Return the use of all users; None: it has neither grown nor decayed."""
        uses = list(self._uses_now())
        used = {use.owner: use.used_us for use in uses}
        if used == self._used:
            return None
        self._used = used
        return uses


def read_figures(connection: sqlite3.Connection) -> tuple[list[PaceKnown], list[UseKnown]]:
    """Read slowdowns, in the order in which they were last measured, and users' use, on this boot's clock."""
    ahead = wall_ahead_us()

    def pace(row: HistoryColumns) -> PaceKnown:
        return PaceKnown(*_pair_of(row.key), *_pace_of(row.value), row.end_us - ahead)

    def use(row: HistoryColumns) -> UseKnown:
        return UseKnown(row.owner, _use_of(row.value), row.end_us - ahead)

    where = "WHERE series = '{}' ORDER BY end_us, key"
    return (
        list(sound_rows(connection, "history", HistoryColumns, pace, where.format(PACES.name))),
        list(sound_rows(connection, "history", HistoryColumns, use, where.format(USES.name))),
    )


def _pace_row(pace: PaceKnown, ahead_us: Micros) -> HistoryRow:
    key, at = msgspec.json.encode(_pair(pace)).decode(), pace.measured_us + ahead_us
    return HistoryRow(0, key, NOBODY, 0, at, at, msgspec.json.encode((pace.total_us, pace.iterations)))


def _use_row(use: UseKnown, ahead_us: Micros) -> HistoryRow:
    at = use.at_us + ahead_us
    return HistoryRow(0, "", use.owner, 0, at, at, msgspec.json.encode(use.used_us))


def _pair(pace: PaceKnown) -> Pair:
    return (pace.model, pace.kind, pace.beside)


def _by_pair(paces: Iterable[PaceKnown]) -> dict[Pair, PaceKnown]:
    return {_pair(pace): pace for pace in paces}
