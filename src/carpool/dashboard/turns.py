"""Turns as they begin and end, from the daemon's events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from carpool.protocol.api import EventInfo

OVER = frozenset(("Detached", "EndJob", "RetryJob"))
ENDS = OVER | {"TurnReleased", "TurnPaused", "TurnPassed"}


class LiveTurn(NamedTuple):
    """A turn, which the page gets as a list.  Times: microseconds of the wall clock; no end: the turn goes on."""

    device: str
    lane: int
    job: int
    begin_us: int
    end_us: int | None
    cause: str


class _Open(NamedTuple):
    device: str
    lane: int
    begin_us: int


class LiveTurns:
    """``device_of``: the device of a lane; ``lane_of``: the lane of a job, if known."""

    def __init__(self, device_of: Callable[[int], str], lane_of: Callable[[int], int | None]) -> None:
        self._device_of, self._lane_of = device_of, lane_of
        self._open: dict[int, _Open] = {}

    def follow(self, event: EventInfo) -> Iterator[LiveTurn]:
        """Yield turns that begin or end with the event; none for hidden events of another user's job."""
        data, job = event.data, event.job
        if job is None or not data:
            return
        if event.kind == "GrantTurn":
            yield self._begin(job, _whole(data.get("lane")), event.time_us)
        elif event.kind in ("TurnReleased", "TurnPaused"):
            yield from self._end(job, event.time_us, str(data.get("cause", "paused")))
        elif event.kind == "TurnPassed":
            lane = self._open[job].lane if job in self._open else self._lane_of(job)
            yield from self._end(job, event.time_us, str(data.get("cause", "")))
            if lane is not None:
                yield self._begin(_whole(data.get("to")), lane, event.time_us)
        elif event.kind in OVER:
            yield from self._end(job, event.time_us, "left")

    def _begin(self, job: int, lane: int, at_us: int) -> LiveTurn:
        self._open[job] = open_ = _Open(self._device_of(lane), lane, at_us)
        return LiveTurn(open_.device, lane, job, at_us, None, "")

    def _end(self, job: int, at_us: int, cause: str) -> Iterator[LiveTurn]:
        open_ = self._open.pop(job, None)
        if open_ is not None:
            yield LiveTurn(open_.device, open_.lane, job, open_.begin_us, at_us, cause)


def holders(event: EventInfo) -> Iterator[tuple[int, bool]]:
    """Yield jobs that get a turn by the event (True) or lose it (False), also a turn that began before all events."""
    if event.job is None or not event.data:
        return
    if event.kind == "GrantTurn":
        yield event.job, True
    elif event.kind in ENDS:
        yield event.job, False
    if event.kind == "TurnPassed":
        yield _whole(event.data.get("to")), True


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
