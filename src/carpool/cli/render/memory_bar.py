"""A device's memory as a bar of letters, one letter for each kind of memory: a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from carpool.protocol.api import DeviceInfo
from carpool.protocol.units import format_size

#: A text, and its style of `Output`.
Piece = tuple[str, str]


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
