"""A device's memory as a bar of letters, one letter for each kind of memory: a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from carpool.protocol.api import DeviceInfo
from carpool.protocol.units import format_size

#: Text, and in which of the styles of `Output` it is written.
Piece = tuple[str, str]


class MemoryPart(NamedTuple):
    """``letter``: in the bar; parts without bytes are not shown."""

    letter: str
    name: str
    style: str
    bytes: int


def memory_parts(device: DeviceInfo) -> list[MemoryPart]:
    """All of a device's memory, in the order of the bar.

    Persistent memory is what is granted beside lanes, so jobs that the caller does not see count as well.
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
    """As in PPPPLLWW··, of ``width`` cells; what there is at all has a cell, as long as there are cells."""
    cells = _cells([part.bytes for part in parts], width)
    return [(part.letter * count, part.style) for part, count in zip(parts, cells, strict=True) if count]


def memory_legend(parts: Sequence[MemoryPart]) -> str:
    """What the letters of the bar mean, and how much that is."""
    return "  ".join(f"{part.letter} {part.name} {format_size(part.bytes)}" for part in parts if part.bytes)


def _cells(sizes: Sequence[int], width: int) -> list[int]:
    """By the ends of the parts, rounded, so that the sum is right; the largest part pays for cells of small ones.

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
