"""From the daemon's event stream to what a picture needs: turns per lane and memory over time.

Times are microseconds of the core's clock (``now_us``), sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from carpool.protocol.api import EventInfo


@dataclass(slots=True)
class Turn:
    job: int
    lane: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Switch:
    """A turn that went to another job: what the yielding job saved, and what one of its switches costs."""

    time_us: int
    job: int
    residue: int
    cost_us: int


@dataclass(slots=True)
class Life:
    """The milestones of one job; None: not reached."""

    submitted_us: int
    started_us: int | None = None
    wanted_us: int | None = None
    computed_us: int | None = None
    ended_us: int | None = None

    @property
    def queueing_us(self) -> int:
        """Waiting for a process plus waiting for the first turn; the job's own start-up is not queueing."""
        started = self.started_us if self.started_us is not None else self.submitted_us
        first = self.computed_us - self.wanted_us if self.computed_us and self.wanted_us else 0
        return started - self.submitted_us + max(0, first)


@dataclass(slots=True)
class Level:
    """Memory granted from ``time_us`` on: persistent per job, and the size of each lane."""

    time_us: int
    persistent: dict[int, int]
    lanes: dict[int, int]

    @property
    def total(self) -> int:
        return sum(self.persistent.values()) + sum(self.lanes.values())


@dataclass(slots=True)
class Timeline:
    turns: list[Turn] = field(default_factory=list)
    switches: list[Switch] = field(default_factory=list)
    lives: dict[int, Life] = field(default_factory=dict)
    levels: list[Level] = field(default_factory=list)

    @property
    def start_us(self) -> int:
        return min((life.submitted_us for life in self.lives.values()), default=0)

    @property
    def end_us(self) -> int:
        ends = [life.ended_us for life in self.lives.values() if life.ended_us is not None]
        return max(ends, default=self.start_us)

    def end_of(self, job: int) -> int:
        """When the job ended; a job that has not is a KeyError."""
        ended = self.lives[job].ended_us
        if ended is None:
            raise KeyError(f"job {job} has not ended")
        return ended

    @property
    def peak_bytes(self) -> int:
        """The most memory that was ever granted at one time."""
        return max((level.total for level in self.levels), default=0)


class _Reader:
    """Follows the events; one method per kind."""

    def __init__(self) -> None:
        self.result = Timeline()
        self._open: dict[int, Turn] = {}  # by lane
        self._lane_of: dict[int, int] = {}
        self._persistent: dict[int, int] = {}
        self._lanes: dict[int, int] = {}
        self._ended_turn: dict[int, Switch] = {}  # by lane: becomes a switch when another job computes next

    def read(self, event: EventInfo) -> None:
        handler = _HANDLERS.get(event.kind)
        if handler is not None:
            handler(self, event.now_us, event.data)

    def _submitted(self, now: int, data: dict[str, Any]) -> None:
        self.result.lives[data["job"]] = Life(now)

    def _process_started(self, now: int, data: dict[str, Any]) -> None:
        self.result.lives[data["job"]].started_us = now

    def _turn_wanted(self, now: int, data: dict[str, Any]) -> None:
        life = self.result.lives[data["job"]]
        life.wanted_us = life.wanted_us or now

    def _grant_turn(self, now: int, data: dict[str, Any]) -> None:
        self._begin(now, data["job"], data["lane"])

    def _turn_passed(self, now: int, data: dict[str, Any]) -> None:
        lane = self._finish(now, data["job"], data["usage"])
        if lane is not None:
            self._begin(now, data["to"], lane)

    def _turn_released(self, now: int, data: dict[str, Any]) -> None:
        self._finish(now, data["job"], data["usage"])

    def _detached(self, now: int, data: dict[str, Any]) -> None:
        self._finish(now, data["job"], None)

    def _end_job(self, now: int, data: dict[str, Any]) -> None:
        job = data["job"]
        self._finish(now, job, None)
        self.result.lives[job].ended_us = now
        self._persistent.pop(job, None)
        self._record(now)

    def _grant_memory(self, now: int, data: dict[str, Any]) -> None:
        self._persistent[data["job"]] = data["memory"]["persistent"]
        self._record(now)

    def _open_lane(self, now: int, data: dict[str, Any]) -> None:
        self._lanes[data["lane"]] = data["size"]
        self._record(now)

    def _close_lane(self, now: int, data: dict[str, Any]) -> None:
        self._lanes.pop(data["lane"], None)
        self._record(now)

    def _begin(self, now: int, job: int, lane: int) -> None:
        life = self.result.lives[job]
        life.computed_us = life.computed_us or now
        self._lane_of[job] = lane
        self._open[lane] = Turn(job, lane, now, now)
        before = self._ended_turn.pop(lane, None)
        if before is not None and before.job != job:
            self.result.switches.append(before)

    def _finish(self, now: int, job: int, usage: dict[str, Any] | None) -> int | None:
        """Close the job's turn, if it holds one.  Returns its lane."""
        lane = self._lane_of.get(job)
        turn = self._open.get(lane) if lane is not None else None
        if turn is None or turn.job != job or lane is None:
            return lane
        turn.end_us = now
        del self._open[lane]
        self.result.turns.append(turn)
        if usage is not None:
            self._ended_turn[lane] = Switch(now, job, usage["residue"], usage["switch_cost_us"])
        return lane

    def _record(self, now: int) -> None:
        level = Level(now, dict(self._persistent), dict(self._lanes))
        if self.result.levels and self.result.levels[-1].time_us == now:
            self.result.levels[-1] = level
        else:
            self.result.levels.append(level)


#: Class name of the event or command -> what it does to the timeline.
_HANDLERS: dict[str, Callable[[_Reader, int, dict[str, Any]], None]] = {
    "Submitted": _Reader._submitted,
    "ProcessStarted": _Reader._process_started,
    "TurnWanted": _Reader._turn_wanted,
    "GrantTurn": _Reader._grant_turn,
    "TurnPassed": _Reader._turn_passed,
    "TurnReleased": _Reader._turn_released,
    "Detached": _Reader._detached,
    "EndJob": _Reader._end_job,
    "GrantMemory": _Reader._grant_memory,
    "OpenLane": _Reader._open_lane,
    "CloseLane": _Reader._close_lane,
    "ResizeLane": _Reader._open_lane,
}


def read_timeline(events: Iterable[EventInfo]) -> Timeline:
    """Events of one daemon from its first submission on, in order.  Unknown kinds are passed over."""
    reader = _Reader()
    for event in events:
        reader.read(event)
    return reader.result
