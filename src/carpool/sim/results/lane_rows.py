"""The rows of a timeline: one per device, or as many as a device had lanes at one time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from carpool.core.model import Allocation, LaneId, Micros
from carpool.sim.model.result import Result, Span


class ReportRow(NamedTuple):
    """``slot`` is 0 for whole devices; lanes take the first slot of their device that is free, from 1 on."""

    device: int
    slot: int

    @property
    def name(self) -> str:
        return f"device {self.device} · {self.slot}" if self.slot else f"device {self.device}"


def rows_of(result: Result, spans: Sequence[Span], devices: int) -> tuple[list[ReportRow], list[ReportRow]]:
    """Return the row of each span, and all rows, in order.  Unused devices have a row, too.

    ``spans`` are in the order of their beginnings; those of the first ``devices`` devices only.
    """
    if result.options.settings.allocation is Allocation.DEVICES:
        return [ReportRow(span.device, 0) for span in spans], [ReportRow(device, 0) for device in range(devices)]
    slots = _slots(spans)
    own = [slots[span.device, span.lane] for span in spans]
    idle = {ReportRow(device, 1) for device in range(devices)}
    return own, sorted(idle | set(own))


def _slots(spans: Sequence[Span]) -> dict[tuple[int, LaneId], ReportRow]:
    """Assign rows to lanes; a lane that has ended never comes back, so later lanes reuse its row."""
    ends: dict[tuple[int, LaneId], Micros] = {}
    for span in spans:
        place = span.device, span.lane
        ends[place] = max(ends.get(place, 0), span.end_us)
    slots: dict[tuple[int, LaneId], ReportRow] = {}
    free_from: dict[ReportRow, Micros] = {}
    for span in spans:
        place = span.device, span.lane
        if place not in slots:
            slot = 1
            while free_from.get(ReportRow(span.device, slot), 0) > span.begin_us:
                slot += 1
            slots[place] = ReportRow(span.device, slot)
            free_from[slots[place]] = ends[place]
    return slots
