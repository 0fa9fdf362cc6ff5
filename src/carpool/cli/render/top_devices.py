"""Lines of `carpool top` about devices and lanes: memory by kind, load, the job with the turn and the next job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from carpool.cli.render.arrays import element_id
from carpool.cli.render.formatting import title
from carpool.cli.render.output import Output, shorten
from carpool.cli.render.telemetry import short_lines
from carpool.protocol.api import DeviceInfo, JobInfo, LaneInfo, TelemetryHistory
from carpool.protocol.display import escaped
from carpool.protocol.units import format_size

#: A text, and its style of `Output`.
Piece = tuple[str, str]
#: Quantities that may stand for a device's load; the first one that is measured does.
LOADS = ("sm_active_ppm", "busy_ppm")
LEVELS = " ▁▂▃▄▅▆▇█"
ONE = 1_000_000
TextLine = list[Piece]
LONGEST_NAME = 24  # of a job, in the line of its lane
LONG, SHORT = (30, 30), (14, 8)  # cells of the bar of memory, and of the load


class MemoryPart(NamedTuple):
    """A kind of memory.  ``letter``: in the bar; parts without bytes are not shown."""

    letter: str
    name: str
    style: str
    bytes: int


def memory_parts(device: DeviceInfo) -> list[MemoryPart]:
    """Return the parts of all of a device's memory, in the order of the bar.

    Persistent memory is all granted memory outside lanes, so jobs that the caller does not see count as well.
    """
    lanes = sum(lane.size_bytes for lane in device.lanes)
    others = max(0, device.capacity_bytes - device.granted_bytes - device.free_bytes)
    return [
        MemoryPart("P", "persistent", "bold", max(0, device.granted_bytes - lanes)),
        MemoryPart("L", "lanes", "green", lanes),
        MemoryPart("W", "weights", "", device.weights_bytes),
        MemoryPart("O", "other programs", "red", others),
        MemoryPart("·", "free", "dim", max(0, device.free_bytes - device.weights_bytes)),
    ]


def memory_bar(parts: Sequence[MemoryPart], width: int) -> list[Piece]:
    """Return a bar of ``width`` cells, as in PPPPLLWW··; each part with bytes has a cell, as far as cells suffice."""
    cells = _cells([part.bytes for part in parts], width)
    return [(part.letter * count, part.style) for part, count in zip(parts, cells, strict=True) if count]


def memory_legend(parts: Sequence[MemoryPart]) -> str:
    """Return the meaning of the bar's letters, and the size of each part."""
    return "  ".join(f"{part.letter} {part.name} {format_size(part.bytes)}" for part in parts if part.bytes)


def _cells(sizes: Sequence[int], width: int) -> list[int]:
    """Round the ends of the parts to cells, so that the sum is right; the largest part pays for cells of small ones.

    >>> _cells([1, 0, 50, 49], 10)
    [1, 0, 4, 5]
    """
    whole = sum(sizes)
    if whole <= 0:
        return [0] * len(sizes)
    ends = [0, *(round(end * width / whole) for end in accumulate(sizes))]
    cells = [after - before for before, after in pairwise(ends)]
    for n, size in enumerate(sizes):
        if size and not cells[n] and max(cells) > 1:
            cells[cells.index(max(cells))] -= 1
            cells[n] = 1
    return cells


def sparkline(values: Sequence[int | None]) -> str:
    """Draw millionths from 0 to one; · where nothing was measured, and a mark for any load above 0.

    >>> sparkline([None, 0, 1, 500_000, 1_000_000])
    '· ▁▄█'
    """
    return "".join("·" if value is None else _level(value) for value in values)


def _level(value: int) -> str:
    step = round(min(ONE, max(0, value)) * (len(LEVELS) - 1) / ONE)
    return LEVELS[max(step, 1 if value > 0 else 0)]


def loads(past: TelemetryHistory, steps: int) -> list[int | None]:
    """Return the load in millionths in the last ``steps`` whole steps of time, oldest first; None: not measured."""
    known = {point.start_us: point.quantities for point in past.points}
    name = next((name for name in LOADS if any(name in each for each in known.values())), None)
    last = past.until_us // past.step_us * past.step_us
    if name is None:
        return []
    spans = (known.get(last - n * past.step_us, {}).get(name) for n in range(steps, 0, -1))
    return [None if span is None else span.mean for span in spans]


def painted_lines(line: TextLine, output: Output) -> list[str]:
    """Wrap a line of one style at the width of the output; cut a line of several styles, such as one with a bar."""
    if output.width is None or len(line) != 1:
        return [_cut_line(line, output)]
    text, style = line[0]
    return [_cut_line([(part, style)], output) for part in output.wrapped([text])]


def _cut_line(line: TextLine, output: Output) -> str:
    shown, left = [], output.width
    for text, style in line:
        part = text if left is None else shorten(text, left) if left > 0 else ""
        shown.append(output.painted(style, part))
        left = None if left is None else left - len(text)
    return "".join(shown)


def device_lines(device: DeviceInfo, saved_bytes: int, load: Sequence[int | None], wide: bool) -> Iterator[TextLine]:
    """Yield a device's lines.  ``saved_bytes``: residue of its jobs' last turns; ``load``: millionths, oldest first."""
    cells, steps = LONG if wide else SHORT
    parts = memory_parts(device)
    granted = f"{format_size(device.granted_bytes)} of {format_size(device.capacity_bytes)} granted"
    shown = f"  load {sparkline(load[-steps:])}" if load else ""
    yield [
        (f"{device.id}  ", "bold"),
        *memory_bar(parts, cells),
        (f"  {granted}, {format_size(max(0, device.used_bytes - device.left_bytes))} in use{shown}", "bold"),
    ]
    yield [(f"{' ' * len(device.id)}  {memory_legend(parts)}{_saved(device, saved_bytes)}", "dim")]
    for line in short_lines(device):
        yield [(line, "dim")]


def _saved(device: DeviceInfo, saved_bytes: int) -> str:
    """Return the text about saved memory; the bar counts saved bytes of lanes as persistent or host memory."""
    kinds = (("of lanes", saved_bytes), ("offloaded", device.stored_bytes))
    texts = [f"{format_size(size)} {name}" for name, size in kinds if size]
    return f"  saved: {', '.join(texts)}" if texts else ""


def lane_line(lane: LaneInfo, known: Mapping[int, JobInfo]) -> TextLine:
    """Return the line of a lane.  ``known``: jobs by their ids; jobs of other users may be missing."""
    holder = "free" if lane.holder is None else f"turn: job {_named(lane.holder, known)}"
    first, rest = lane.waiting[:1], lane.waiting[1:]
    following = f"  next: job {_named(first[0], known)}" if first else ""
    others = f", then {', '.join(_id(job, known) for job in rest)}" if rest else ""
    return [(f"  lane {lane.id}  {format_size(lane.size_bytes)}  {holder}{following}{others}", "")]


def _named(job: int, known: Mapping[int, JobInfo]) -> str:
    name = title(known[job]) if job in known else "-"
    return _id(job, known) if name == "-" else f"{_id(job, known)} {escaped(shorten(name, LONGEST_NAME))}"


def _id(job: int, known: Mapping[int, JobInfo]) -> str:
    return element_id(known[job]) if job in known else str(job)
