"""What devices did: every sample of the last minutes in memory, minutes and hours in the journal's history.

A minute is written when the next one begins, and when the daemon stops: a daemon that is killed loses at most one.
Rows of the same minute or hour add up, so neither a restart nor a clock that is set back counts anything twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from carpool.core.model import DeviceId, Micros
from carpool.daemon.journal.history import (
    DAY,
    HOUR,
    MINUTE,
    NOBODY,
    HistoryRow,
    HistorySeries,
    Level,
    additions,
    read_only,
    spoilt,
    stored_rows,
)
from carpool.daemon.journal.writer import Journal
from carpool.telemetry.rollup import RollupSpan, Spans, add, begin, spans_of
from carpool.telemetry.sample import Sample

#: Samples in memory: ten minutes at ten in a second.
RECENT_US: Micros = 10 * MINUTE
RECENT = 6000
_decode = msgspec.msgpack.Decoder(Spans).decode


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

    def _write(self, device: DeviceId) -> None:
        minute, spans = self._open.pop(device)
        if spans:
            row = HistoryRow(0, device, NOBODY, MINUTE, minute, minute + MINUTE, msgspec.msgpack.encode(spans))
            self._journal.owe(*additions(DEVICES.name, [row]), droppable=True)


def _parts(rows: Iterator[HistoryRow]) -> Iterator[tuple[Micros, Spans]]:
    """Yield the begins and spans of the rows that can be read."""
    for row in rows:
        try:
            spans = _decode(row.value)
        except msgspec.MsgspecError:
            spans = {}
        if spans and all(
            s.samples > 0 and s.least * s.samples <= s.total <= s.most * s.samples for s in spans.values()
        ):
            yield row.begin_us, spans
        else:
            spoilt(row.number)


def _sound(span: RollupSpan) -> bool:
    return span.samples > 0 and span.least * span.samples <= span.total <= span.most * span.samples


def _merge(rows: Sequence[HistoryRow], level: Level) -> bytes | None:
    """Return the spans of minutes as those of their hour."""
    found: Spans = {}
    for _, spans in _parts(iter(rows)):
        add(found, spans)
    return msgspec.msgpack.encode(found) if found else None


MINUTES_KEPT: Micros = 7 * DAY  # then hours take their place
DEVICES = HistorySeries("device", 90 * DAY, (Level(MINUTES_KEPT, HOUR, HOUR),), _merge)
