"""The timeline as one self-contained SVG: a band per round with who computes in each lane, and memory below."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from carpool.facts.fact import Fact
from tools.demo.svg import document, rectangle, text
from tools.demo.timeline import Level, Timeline

WIDTH = 1120
LEFT = 120
RIGHT = 20
LANE_HEIGHT = 26
MEMORY_HEIGHT = 90
GAP = 14
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")
LANE_COLOUR = "#d8dbe2"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Band:
    """One round: ``names`` maps job ids to what people read."""

    title: str
    timeline: Timeline
    names: dict[int, str]


@dataclass(frozen=True, slots=True)
class _Scale:
    """Microseconds since the start of a round to x."""

    span_us: int

    def x(self, elapsed_us: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * elapsed_us / max(1, self.span_us)


def draw(bands: list[Band], capacity: int, peaks_together: int | None = None) -> str:
    """``capacity`` is the device's, ``peaks_together`` what all jobs would need side by side; both in bytes."""
    scale = _Scale(max((band.timeline.end_us - band.timeline.start_us for band in bands), default=1))
    colours = _colours(bands)
    parts = list(_legend(colours, capacity, peaks_together))
    y = 60.0
    for band in bands:
        parts += _band(band, scale, colours, capacity, y)
        y += _height(band)
    parts += _axis(scale, y)
    return document(WIDTH, round(y + 40), "Carpool: who computes, and whose memory", parts)


def _colours(bands: list[Band]) -> dict[str, str]:
    names = list(dict.fromkeys(name for band in bands for _, name in sorted(band.names.items())))
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}


def _lanes(timeline: Timeline) -> list[int]:
    return sorted({turn.lane for turn in timeline.turns if turn.lane is not None})


def _height(band: Band) -> float:
    return 28 + max(1, len(_lanes(band.timeline))) * (LANE_HEIGHT + 4) + MEMORY_HEIGHT + 2 * GAP


def _legend(colours: dict[str, str], capacity: int, peaks: int | None) -> Iterable[str]:
    x = float(LEFT)
    for name, colour in [*colours.items(), ("lane (E)", LANE_COLOUR)]:
        yield rectangle(x, 12, 14, 14, colour)
        yield text(x + 20, 24, name)
        x += 40 + 8 * len(name)
    together = "" if peaks is None else f"; the jobs' peaks together {peaks / MIB:.0f} MiB"
    yield text(LEFT, 46, f"device {capacity / MIB:.0f} MiB{together}", "dim")


def _band(band: Band, scale: _Scale, colours: dict[str, str], capacity: int, y: float) -> Iterable[str]:
    timeline, start = band.timeline, band.timeline.start_us
    yield text(8, y + 16, band.title, "title")
    seconds = (timeline.end_us - start) / 1e6
    yield text(LEFT, y + 16, f"{seconds:.1f} s, {len(timeline.switches)} switches", "dim")
    y += 28
    for lane in _lanes(timeline):
        yield text(8, y + LANE_HEIGHT - 9, f"lane {lane}")
        yield rectangle(LEFT, y, WIDTH - LEFT - RIGHT, LANE_HEIGHT, "#f4f5f7")
        for turn in _merged([turn for turn in timeline.turns if turn.lane == lane], scale.span_us):
            name = band.names.get(turn.job, str(turn.job))
            begin, end = (turn.start_us or start) - start, (turn.end_us or start) - start
            left, right = scale.x(begin), scale.x(end)
            label = f"{name}: {begin / 1e6:.2f} to {end / 1e6:.2f} s"
            yield rectangle(left, y, right - left, LANE_HEIGHT, colours[name], label)
        y += LANE_HEIGHT + 4
    yield from _memory(band, scale, colours, capacity, y + GAP)


def _merged(turns: list[Fact], span_us: int) -> list[Fact]:
    """Turns of one job with less than half a pixel between them become one rectangle."""
    gap_us = span_us / (2 * WIDTH)
    merged: list[Fact] = []
    for turn in sorted(turns, key=lambda turn: turn.start_us or 0):
        if merged and merged[-1].job == turn.job and (turn.start_us or 0) - (merged[-1].end_us or 0) <= gap_us:
            merged[-1] = replace(merged[-1], end_us=turn.end_us)
        else:
            merged.append(turn)
    return merged


def _memory(band: Band, scale: _Scale, colours: dict[str, str], capacity: int, top: float) -> Iterable[str]:
    """Stacked steps: the lanes below, each job's persistent memory above, the capacity as a line."""
    start, end = band.timeline.start_us, band.timeline.end_us
    height = MEMORY_HEIGHT - 10
    highest = max(capacity, band.timeline.peak_bytes, 1)

    def y_of(size: int) -> float:
        return top + height - height * size / highest

    yield text(8, top + height / 2, "memory")
    for begin, until, level in _steps(band.timeline.levels, end):
        x = scale.x(begin - start)
        width = scale.x(until - start) - x
        for low, high, colour, label in _layers(level, band.names, colours):
            yield rectangle(x, y_of(high), width, y_of(low) - y_of(high), colour, label)
    yield f'<path d="M{LEFT} {y_of(capacity):.1f}H{WIDTH - RIGHT}" stroke="#c00" stroke-dasharray="4 3"/>'
    yield text(LEFT - 62, y_of(capacity) + 4, f"{capacity / MIB:.0f} MiB", "dim")


def _steps(levels: list[Level], end_us: int) -> Iterable[tuple[int, int, Level]]:
    ends = [*(level.time_us for level in levels[1:]), end_us]
    for level, until in zip(levels, ends, strict=False):  # no level: no step
        if until > level.time_us:
            yield level.time_us, until, level


def _layers(level: Level, names: dict[int, str], colours: dict[str, str]) -> Iterable[tuple[int, int, str, str]]:
    """(from, to, colour, label) in bytes, bottom up."""
    low = 0
    for lane, size in sorted(level.lanes.items()):
        yield low, low + size, LANE_COLOUR, f"lane {lane}: {size / MIB:.1f} MiB"
        low += size
    for job, size in sorted(level.persistent.items()):
        name = names.get(job, str(job))
        yield low, low + size, colours.get(name, "#999"), f"{name} P: {size / MIB:.1f} MiB"
        low += size


def _axis(scale: _Scale, y: float) -> Iterable[str]:
    seconds = scale.span_us / 1e6
    step = next((step for step in (1, 2, 5, 10, 20, 60, 300) if seconds / step <= 12), 3600)
    yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#888"/>'
    for tick in range(0, int(seconds) + 1, step):
        x = scale.x(tick * 1_000_000)
        yield f'<path d="M{x:.1f} {y:.1f}v5" stroke="#888"/>'
        yield text(x - 8, y + 20, f"{tick} s", "dim")
