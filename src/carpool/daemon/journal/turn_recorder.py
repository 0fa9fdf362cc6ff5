"""Makes blocks of turns: who had which lane, from when to when by the wall clock, and how that ended."""

from __future__ import annotations

from collections.abc import Callable

from carpool.core.model import LaneId, Micros
from carpool.daemon.journal.recorded_lane import RecordedLane, TurnBlock
from carpool.daemon.system.clock import wall_ahead_us
from carpool.facts.fact import Fact, Told, What

#: A drift beyond this is followed: following a smaller one would move turns that were shown already.
DRIFT_US: Micros = 10_000


class TurnRecorder:
    """``put`` takes blocks; ``ahead``: what the wall clock is ahead of the core's."""

    def __init__(self, put: Callable[[TurnBlock], None], ahead: Callable[[], Micros] = wall_ahead_us) -> None:
        self._put = put
        self._ahead = ahead
        self._ahead_us = ahead()
        self._lanes: dict[LaneId, RecordedLane] = {}

    def take(self, told: Told) -> None:
        """Take what a fold tells, in order."""
        if isinstance(told, Fact) and told.what == What.TURN and told.lane is not None and told.start_us is not None:
            self._look_at_clock()
            lane = self._lanes.get(told.lane)
            if lane is None:
                lane = self._lanes[told.lane] = RecordedLane(told.device, told.lane)
            lane.take(told)
            if lane.full:
                self._put_lane(lane)

    def write(self) -> None:
        """Make blocks of all turns that are over."""
        for lane in self._lanes.values():
            self._put_lane(lane)
        self._lanes = {number: lane for number, lane in self._lanes.items() if not lane.idle}

    def present(self, now_us: Micros) -> list[TurnBlock]:
        """Return copies of turns that are in no block yet, with turns that go on: as large as what is in memory."""
        return [lane.present(now_us, self._ahead_us) for lane in self._lanes.values()]

    def _look_at_clock(self) -> None:
        """If the wall clock was set or has drifted, write what happened before with the times it had."""
        ahead = self._ahead()
        if abs(ahead - self._ahead_us) > DRIFT_US:
            self.write()
            self._ahead_us = ahead

    def _put_lane(self, lane: RecordedLane) -> None:
        block = lane.taken(self._ahead_us)
        if block is not None:
            self._put(block)
