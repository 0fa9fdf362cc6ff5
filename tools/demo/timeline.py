"""From the daemon's event stream to what a picture needs: turns per lane and memory over time.

Times are microseconds of the core's clock (``now_us``), sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from carpool.facts.fact import Fact, MemoryLevel, Told, What
from carpool.facts.recorded import RecordedFacts
from carpool.protocol.api import EventInfo


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
    turns: list[Fact] = field(default_factory=list)
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
    """Follows the facts."""

    def __init__(self) -> None:
        self.result = Timeline()
        self._persistent: dict[int, int] = {}
        self._lanes: dict[int, int] = {}
        self._ended_turn: dict[int, Switch] = {}  # by lane: becomes a switch when another job computes next

    def read(self, now_us: int, told: Told) -> None:
        if isinstance(told, MemoryLevel):
            self._level(now_us, told)
        elif told.what == What.TURN:
            self._turn(told)
        elif told.what == What.WAITS and told.end_us is None:
            self._life(told.job).wanted_us = self._life(told.job).wanted_us or told.start_us

    def milestone(self, event: EventInfo) -> None:
        if event.kind == "Submitted":
            self.result.lives[event.job or 0] = Life(event.now_us)
        elif event.kind == "ProcessStarted":
            self._life(event.job).started_us = event.now_us
        elif event.kind == "EndJob":
            self._life(event.job).ended_us = event.now_us

    def _life(self, job: int | None) -> Life:
        return self.result.lives[job or 0]

    def _turn(self, turn: Fact) -> None:
        if turn.end_us is None:
            self._begins(turn)
        elif turn.start_us is not None:
            self.result.turns.append(turn)
            if turn.lane is not None and turn.usage is not None:
                self._ended_turn[turn.lane] = Switch(
                    turn.end_us, turn.job, turn.usage.residue, turn.usage.switch_cost_us
                )

    def _begins(self, turn: Fact) -> None:
        life = self._life(turn.job)
        life.computed_us = life.computed_us or turn.start_us
        before = None if turn.lane is None else self._ended_turn.pop(turn.lane, None)
        if before is not None and before.job != turn.job:
            self.result.switches.append(before)

    def _level(self, now_us: int, told: MemoryLevel) -> None:
        if told.lane is not None:
            self._lanes[told.lane] = told.size
        else:
            self._persistent[told.job or 0] = told.size
        level = Level(now_us, _positive(self._persistent), _positive(self._lanes))
        if self.result.levels and self.result.levels[-1].time_us == now_us:
            self.result.levels[-1] = level
        else:
            self.result.levels.append(level)


def _positive(sizes: dict[int, int]) -> dict[int, int]:
    return {number: size for number, size in sizes.items() if size}


def read_timeline(events: Iterable[EventInfo]) -> Timeline:
    """Events of one daemon from its first submission on, in order.  Unknown kinds are passed over."""
    reader, facts = _Reader(), RecordedFacts()
    for event in events:
        reader.milestone(event)
        for told in facts.read(event):
            reader.read(event.now_us, told)
    return reader.result
