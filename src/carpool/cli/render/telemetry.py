"""Measurements of a device: in words, and over time as a table with a line per step of time and a bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain

from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import Output
from carpool.protocol.api import DeviceInfo, PointInfo, ProcessInfo, SpanInfo, TelemetryHistory, TelemetryInfo
from carpool.protocol.units import format_duration, format_size, format_time_us

#: Quantities whose absence is reported, and their names.
NAMES = {
    "busy_ppm": "use",
    "sm_active_ppm": "SM active",
    "sm_occupancy_ppm": "SM occupancy",
    "dram_active_ppm": "DRAM active",
    "used_bytes": "memory",
    "foreign_bytes": "unmanaged memory",
    "power_mw": "power",
    "temperature_c": "temperature",
}
#: Loads, and their words, of the machine's processors and of a GPU.
HOST_LOADS = (
    ("sm_active_ppm", "computing {}"),
    ("sm_occupancy_ppm", "cores {}"),
    ("busy_ppm", "machine {} busy"),
    ("dram_active_ppm", "DRAM {}"),
)
GPU_LOADS = (("sm_active_ppm", "SM active {}"), ("sm_occupancy_ppm", "occupancy {}"), ("dram_active_ppm", "DRAM {}"))
NONE, BASIC, HOST = "none", "basic", "host"
MJ_PER_KWH = 3.6e9  # millijoules
SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
#: Steps of time for a table: the first step is taken that makes no more than `LINES` lines.
STEPS = tuple(n * SECOND for n in (1, 2, 5, 10, 20)) + tuple(n * MINUTE for n in (1, 2, 5, 10, 20, 60, 180, 720, 1440))
LINES = 30
DAY = 24 * HOUR
BAR = 20


def measured_lines(device: DeviceInfo) -> Iterator[str]:
    """Yield lines for `carpool devices`: a device's load, other processes, what slows it, missing measurements."""
    info = device.telemetry
    for line in short_lines(device):
        yield f"  {line}"
    yield from _kind_lines(device)
    if info.energy_mj is not None:
        since = "of the machine's processors since the daemon's first measurement"
        since = since if info.level == HOST else "since the driver was loaded"
        yield f"  {device.id} energy {since}: {info.energy_mj / MJ_PER_KWH:.2f} kWh"
    if info.load is not None and info.load.degraded:
        yield f"  {device.id} load for placement: {info.load.degraded}"
    if info.foreign_bytes:
        yield f"  {device.id} unmanaged memory: {format_size(info.foreign_bytes)}{_foreign(info.processes)}"
    for why, names in _missing(info).items():
        yield f"  {device.id} not measured: {', '.join(names)} ({why})"


def _kind_lines(device: DeviceInfo) -> Iterator[str]:
    info = device.telemetry
    if info.mig:
        yield f"  {device.id} is an instance of a partitioned GPU (MIG)"
    if info.mps:
        yield f"  {device.id} is used through an MPS server"
    elif device.sharing == "mps" and info.mps is False and info.processes:
        yield f"  {device.id} is to be shared through MPS, but no process there uses an MPS server"


def short_lines(device: DeviceInfo) -> Iterator[str]:
    """Yield lines for `carpool top`: a device's load, and what slows the device down."""
    yield summary(device)
    if device.telemetry.throttled:
        yield f"{device.id} is slowed down by: {', '.join(device.telemetry.throttled)}"


def summary(device: DeviceInfo) -> str:
    """Return one line with a device's measurements and their age."""
    info = device.telemetry
    if info.level == NONE:
        last = "" if info.age_us is None else f" (last measured {format_duration(info.age_us)} ago)"
        return f"{device.id} not measured: {info.reason or 'the daemon does not say why'}{last}"
    age = f"{format_duration(info.age_us or 0)} ago"
    less = f" ({info.level})" if info.level == BASIC else ""
    return f"{device.id} measured {age}{less}: {', '.join(_parts(info)) or 'no figures'}"


def _parts(info: TelemetryInfo) -> Iterator[str]:
    for name, words in _loads(info):
        if (ppm := getattr(info, name)) is not None:
            yield words.format(percent(ppm))
    if info.used_bytes is not None:
        yield f"{format_size(info.used_bytes)} in use"
    if info.power_mw is not None:
        yield f"{info.power_mw // 1000}{_limit(info.power_limit_mw, 1000)} W"
    if info.temperature_c is not None:
        yield f"{info.temperature_c} °C"
    if info.clock_mhz is not None:
        yield f"{info.clock_mhz}{_limit(info.clock_limit_mhz, 1)} MHz"


def _loads(info: TelemetryInfo) -> tuple[tuple[str, str], ...]:
    """Return the loads to show; the driver's figure stands in for a missing counter of the multiprocessors."""
    if info.level == HOST:
        return HOST_LOADS
    return GPU_LOADS if info.sm_active_ppm is not None else (("busy_ppm", "GPU {} busy"), *GPU_LOADS)


def percent(ppm: int) -> str:
    """Return millionths as a percentage.

    >>> percent(634_999)
    '63 %'
    """
    return f"{ppm / 10_000:.0f} %"


def _limit(limit: int | None, unit: int) -> str:
    return "" if limit is None else f" of {limit // unit}"


def _foreign(processes: list[ProcessInfo] | None) -> str:
    """Name the processes that belong to no job, the largest first."""
    others = [process for process in processes or () if process.job is None]
    others.sort(key=lambda process: -(process.used_bytes or 0))
    return f" (process {', '.join(str(process.pid) for process in others)})" if others else ""


def _missing(info: TelemetryInfo) -> dict[str, list[str]]:
    """Return missing quantities by reason.  A host device is not expected to have the counters of a GPU."""
    expected = ("busy_ppm", "power_mw", "temperature_c") if info.level == HOST else tuple(NAMES)
    reasons: dict[str, list[str]] = {}
    for quantity in expected:
        if quantity in info.missing:
            reasons.setdefault(info.missing[quantity], []).append(NAMES[quantity])
    return reasons


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
    known = set(chain(*(point.quantities for point in past.points)))
    columns = [column for column in COLUMNS if column[0] in known]
    bar = next(filter(known.__contains__, ("sm_active_ppm", "busy_ppm")), "")
    header = [*map(TableColumn, ("TIME", *(title for _, title, _ in columns), "MOST", ""))]
    layout = "%m-%d %H:%M" if past.step_us >= HOUR else "%H:%M:%S"
    yield from output.table(header, [_row(point, columns, bar, layout) for point in past.points])
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
