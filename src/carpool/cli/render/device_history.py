"""Measurements of a device over time: a line per step of time, with a bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import Output
from carpool.cli.render.telemetry import percent
from carpool.protocol.api import PointInfo, SpanInfo, TelemetryHistory
from carpool.protocol.units import format_size, format_time_us

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
#: Steps of time for a table: the first step is taken that makes no more than `LINES` lines.
STEPS = tuple(n * SECOND for n in (1, 2, 5, 10, 20)) + tuple(n * MINUTE for n in (1, 2, 5, 10, 20, 60, 180, 720, 1440))
LINES = 30
DAY = 24 * HOUR
BAR = 20

Show = Callable[[int], str]
#: Quantity, the name of its column, and how its mean is shown.
COLUMNS: tuple[tuple[str, str, Show], ...] = (
    ("sm_active_ppm", "SMACT", percent),
    ("sm_occupancy_ppm", "SMOCC", percent),
    ("dram_active_ppm", "DRAMA", percent),
    ("busy_ppm", "BUSY", percent),
    ("used_bytes", "MEMORY", format_size),
    ("moved_bytes_per_s", "MOVED/S", format_size),
    ("power_mw", "POWER", lambda value: f"{value // 1000} W"),
)


def step_for(span_us: int) -> int:
    """Return the step of time, in microseconds, for a table that covers ``span_us``."""
    return next((step for step in STEPS if span_us <= LINES * step), DAY)


def past_lines(past: TelemetryHistory, output: Output) -> Iterator[str]:
    """Yield the lines of a table, oldest first; then a line about the measurements in the table."""
    if not past.points:
        yield f"{past.device}: no measurements of that time are kept"
        return
    columns = [column for column in COLUMNS if any(column[0] in point.quantities for point in past.points)]
    bar = next((name for name in ("sm_active_ppm", "busy_ppm") if name in [column[0] for column in columns]), "")
    header = [
        TableColumn("TIME"),
        *(TableColumn(title) for _, title, _ in columns),
        TableColumn("MOST"),
        TableColumn(""),
    ]
    layout = "%m-%d %H:%M" if past.step_us >= HOUR else "%H:%M:%S"
    rows = [_row(point, columns, bar, layout) for point in past.points]
    yield from output.table(header, rows)
    what = "SMACT" if bar == "sm_active_ppm" else "BUSY"
    step = format_time_us(past.step_us)
    about = f"{past.device}: means of {step} per line, from {past.source}; MOST and the bar: largest and mean {what}"
    yield from output.wrapped([about])


def _row(point: PointInfo, columns: list[tuple[str, str, Show]], bar: str, layout: str) -> tuple[str, ...]:
    shown = (_mean(point.quantities.get(name), show) for name, _, show in columns)
    span = point.quantities.get(bar)
    when = time.strftime(layout, time.localtime(point.start_us / 1e6))
    return (when, *shown, "-" if span is None else percent(span.max), "" if span is None else drawn(span))


def _mean(span: SpanInfo | None, show: Show) -> str:
    return "-" if span is None else show(span.mean)


def drawn(span: SpanInfo) -> str:
    """Return the mean as a bar, with a mark at the maximum.

    >>> drawn(SpanInfo(min=0, mean=250_000, max=500_000, samples=9))
    '█████    |'
    """
    mean, most = (min(BAR, max(0, value * BAR // 1_000_000)) for value in (span.mean, span.max))
    return "█" * mean + (" " * (most - mean - 1) + "|" if most > mean else "")
