"""What `carpool top` says of devices and lanes: memory by kind, load, who has the turn and who is next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from carpool.cli.render.memory_bar import Piece, memory_bar, memory_legend, memory_parts
from carpool.cli.render.output import Output, shorten
from carpool.cli.render.sparkline import sparkline
from carpool.cli.render.telemetry import short_lines
from carpool.protocol.api import DeviceInfo, LaneInfo
from carpool.protocol.escaping import escaped
from carpool.protocol.units import format_size

TextLine = list[Piece]
LONG, SHORT = (30, 30), (14, 8)  # cells of the bar of memory, and of the load


def painted_line(line: TextLine, output: Output) -> str:
    """Cut to the width of the output."""
    shown, left = [], output.width
    for text, style in line:
        part = text if left is None else shorten(text, left) if left > 0 else ""
        shown.append(output.painted(style, part))
        left = None if left is None else left - len(text)
    return "".join(shown)


def device_lines(device: DeviceInfo, residue_bytes: int, load: Sequence[int | None], wide: bool) -> Iterator[TextLine]:
    """``residue_bytes``: of its jobs, at their last switches; ``load``: millionths, oldest first."""
    cells, steps = LONG if wide else SHORT
    parts = memory_parts(device)
    granted = f"{format_size(device.granted_bytes)} of {format_size(device.capacity_bytes)} granted"
    shown = f"  load {sparkline(load[-steps:])}" if load else ""
    yield [
        (f"{device.id}  ", "bold"),
        *memory_bar(parts, cells),
        (f"  {granted}, {format_size(device.used_bytes)} in use{shown}", "bold"),
    ]
    yield [(f"{' ' * len(device.id)}  {memory_legend(parts)}{_saved(device, residue_bytes)}", "dim")]
    for line in short_lines(device):
        yield [(line, "dim")]


def _saved(device: DeviceInfo, residue_bytes: int) -> str:
    """What is saved, as the text beside the bar; the bar counts residue as persistent memory or as host memory."""
    kinds = (("residue", residue_bytes), ("in the host store", device.stored_bytes))
    texts = [f"{format_size(size)} {name}" for name, size in kinds if size]
    return f"  saved: {', '.join(texts)}" if texts else ""


def lane_line(lane: LaneInfo, names: Mapping[int, str]) -> TextLine:
    """``names``: of jobs, as far as they are known."""
    holder = "free" if lane.holder is None else f"turn: job {_named(lane.holder, names)}"
    first, rest = lane.waiting[:1], lane.waiting[1:]
    following = f"  next: job {_named(first[0], names)}" if first else ""
    others = f", then {', '.join(map(str, rest))}" if rest else ""
    return [(f"  lane {lane.id}  {format_size(lane.size_bytes)}  {holder}{following}{others}", "")]


def _named(job: int, names: Mapping[int, str]) -> str:
    name = names.get(job, "-")
    return str(job) if name == "-" else f"{job} {escaped(shorten(name, 24))}"
