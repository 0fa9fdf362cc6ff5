"""What devices did: every sample of the last minutes in memory, minutes and hours in the journal.

A minute is written when the next one begins, and when the daemon stops: a daemon that is killed loses at most one.
Rows of the same minute or hour add up, so neither a restart nor a clock that is set back counts anything twice.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from carpool.core.model import DeviceId, Micros
from carpool.daemon.journal.writer import Journal
from carpool.telemetry.rollup import RollupSpan, Spans, add, begin, spans_of
from carpool.telemetry.sample import Sample

log = logging.getLogger(__name__)
MINUTE: Micros = 60_000_000
HOUR: Micros = 60 * MINUTE
DAY: Micros = 24 * HOUR
#: How long rows of a step are kept.
KEEP: dict[Micros, Micros] = {MINUTE: 7 * DAY, HOUR: 90 * DAY}
#: Samples in memory: ten minutes at ten in a second.
RECENT_US: Micros = 10 * MINUTE
RECENT = 6000

_ADD = """INSERT INTO telemetry (device, step_us, start_us, quantity, least, total, most, samples)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET least = min(least, excluded.least),
  total = total + excluded.total, most = max(most, excluded.most), samples = samples + excluded.samples"""
_PRUNE = "DELETE FROM telemetry WHERE step_us = ? AND start_us < ?"
_SELECT = """SELECT start_us, quantity, least, total, most, samples FROM telemetry
  WHERE device = ? AND step_us = ? AND start_us >= ? AND start_us <= ? ORDER BY start_us, quantity"""


class DeviceHistory:
    """The telemetry of all devices.  Times are the wall clock's."""

    def __init__(self, journal: Journal, path: Path) -> None:
        self._journal = journal
        self._path = path
        self._recent: dict[DeviceId, deque[tuple[Micros, Sample]]] = {}
        self._open: dict[DeviceId, tuple[Micros, Spans]] = {}
        self._pruned_us: Micros = 0

    def add(self, device: DeviceId, now: Micros, sample: Sample) -> None:
        recent = self._recent.setdefault(device, deque(maxlen=RECENT))
        recent.append((now, sample))
        while recent[0][0] < now - RECENT_US:
            recent.popleft()
        minute = begin(now, MINUTE)
        if device in self._open and self._open[device][0] != minute:
            self._write(device)
            self._prune(now)
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
        """Read rows of the journal, without those not written yet; for a thread: reads the disk."""
        connection = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)
        try:
            rows = connection.execute(_SELECT, (device, step, since, until)).fetchall()
        finally:
            connection.close()
        return list(_understood(rows))

    def _write(self, device: DeviceId) -> None:
        minute, spans = self._open.pop(device)
        rows = [
            (device, step, begin(minute, step), name, span.least, span.total, span.most, span.samples)
            for step in KEEP
            for name, span in spans.items()
        ]
        if rows:
            self._journal.owe(_ADD, rows, droppable=True)

    def _prune(self, now: Micros) -> None:
        """Remove rows that are too old, once an hour."""
        if now - self._pruned_us >= HOUR or now < self._pruned_us:
            self._pruned_us = now
            self._journal.owe(_PRUNE, [(step, now - kept) for step, kept in KEEP.items()], droppable=True)


def _understood(rows: list[tuple[object, ...]]) -> Iterator[tuple[Micros, Spans]]:
    """Yield the rows that can be read, and leave the others out."""
    spoilt = 0
    for start, name, *numbers in rows:
        if isinstance(start, int) and isinstance(name, str) and (span := _span(numbers)) is not None:
            yield start, {name: span}
        else:
            spoilt += 1
    if spoilt:
        log.warning("the journal has %d rows of telemetry that make no sense; they are left out", spoilt)


def _span(numbers: list[object]) -> RollupSpan | None:
    least, total, most, samples = numbers
    if not (isinstance(least, int) and isinstance(total, int) and isinstance(most, int) and isinstance(samples, int)):
        return None
    span = RollupSpan(least, total, most, samples)
    return span if samples > 0 and least * samples <= total <= most * samples else None
