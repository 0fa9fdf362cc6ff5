"""Makes turns of the core's events and commands: who had which lane, from when to when, and how that ended.

Events have the same meanings as in `carpool.timeline.follower`, which reads what has been recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from carpool.core import commands, events
from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import DeviceId, JobId, LaneId, Micros
from carpool.daemon.journal.recorded_lane import RecordedLane, TurnBlock
from carpool.daemon.journal.turn_blocks import CODES, UNKNOWN
from carpool.daemon.system.clock import wall_ahead_us

#: A drift beyond this is followed: following a smaller one would move turns that were shown already.
DRIFT_US: Micros = 10_000


class TurnRecorder:
    """``owner``: uid of a job's user; ``put`` takes blocks; ``ahead``: what the wall clock is ahead of the core's."""

    def __init__(
        self,
        owner: Callable[[JobId], int | None],
        put: Callable[[TurnBlock], None],
        ahead: Callable[[], Micros] = wall_ahead_us,
    ) -> None:
        self._owner = owner
        self._put = put
        self._ahead = ahead
        self._ahead_us = ahead()
        self._latest_us: Micros = 0
        self._lanes: dict[LaneId, RecordedLane] = {}
        self._lane_of: dict[JobId, LaneId] = {}
        self._handlers: dict[type, Callable[[Micros, Any], None]] = {
            events.RestartBegan: self._restart_began,
            events.Adopted: self._adopted,
            events.Detached: self._detached,
            events.TurnPaused: self._turn_paused,
            events.TurnReleased: self._turn_released,
            events.TurnPassed: self._turn_passed,
            commands.OpenLane: self._open_lane,
            commands.CloseLane: self._close_lane,
            commands.StartJob: self._start_job,
            commands.MoveJob: self._move_job,
            commands.GrantTurn: self._turn_granted,
            commands.RetryJob: self._retried,
            commands.EndJob: self._ended,
        }

    def happened(self, now_us: Micros, happened: Event | Command) -> None:
        """Take events and commands in order, each event before the commands that follow from it."""
        handler = self._handlers.get(type(happened))
        if handler is not None:
            self._look_at_clock()
            handler(now_us, happened)
        self._latest_us = now_us

    def write(self) -> None:
        """Make blocks of all turns that are over."""
        for lane in self._lanes.values():
            self._put_lane(lane)

    def close(self) -> None:
        """End and write all turns: how they go on without the daemon is not known."""
        self._lose()

    def present(self, now_us: Micros) -> list[TurnBlock]:
        """Return copies of turns that are in no block yet, with turns that go on: as large as what is in memory."""
        return [lane.present(now_us, self._ahead_us) for lane in self._lanes.values()]

    # The clock

    def _look_at_clock(self) -> None:
        """If the wall clock was set or has drifted, write what happened before with the times it had."""
        ahead = self._ahead()
        if abs(ahead - self._ahead_us) > DRIFT_US:
            self.write()
            self._ahead_us = ahead

    # Lanes

    def _lane(self, number: LaneId, device: DeviceId = "") -> RecordedLane:
        found = self._lanes.get(number)
        if found is None:
            found = self._lanes[number] = RecordedLane(device, number)
        return found

    def _put_lane(self, lane: RecordedLane) -> None:
        block = lane.taken(self._ahead_us)
        if block is not None:
            self._put(block)

    def _open_lane(self, now_us: Micros, command: commands.OpenLane) -> None:
        self._lane(command.lane, command.device).belongs_to(command.owner)

    def _close_lane(self, now_us: Micros, command: commands.CloseLane) -> None:
        lane = self._lanes.pop(command.lane, None)
        if lane is not None:
            lane.end(now_us, UNKNOWN)
            self._put_lane(lane)

    def _place(self, job: JobId, device: DeviceId, lane: LaneId | None) -> None:
        if lane is None:
            self._lane_of.pop(job, None)
            return
        self._lane_of[job] = lane
        self._lane(lane, device).belongs_to(self._owner(job))

    def _start_job(self, now_us: Micros, command: commands.StartJob) -> None:
        self._place(command.job, command.device, command.lane)

    def _move_job(self, now_us: Micros, command: commands.MoveJob) -> None:
        self._lane_of[command.job] = command.lane

    # The daemon's own life

    def _restart_began(self, now_us: Micros, event: events.RestartBegan) -> None:
        self._lose()

    def _lose(self) -> None:
        for lane in self._lanes.values():
            lane.end(self._latest_us, UNKNOWN)
        self.write()
        self._lanes, self._lane_of = {}, {}

    def _adopted(self, now_us: Micros, event: events.Adopted) -> None:
        self._place(event.job, event.device, event.lane)
        if event.holds_turn and not event.paused and event.lane is not None:
            self._begin(event.lane, event.job, now_us)

    # Turns

    def _turn_granted(self, now_us: Micros, command: commands.GrantTurn) -> None:
        self._lane_of[command.job] = command.lane
        self._begin(command.lane, command.job, now_us)

    def _turn_passed(self, now_us: Micros, event: events.TurnPassed) -> None:
        lane = self._lane_of.get(event.job)
        self._over(now_us, event.job, event.cause.value)
        if lane is not None:
            self._lane_of[event.to] = lane
            self._begin(lane, event.to, now_us)

    def _turn_released(self, now_us: Micros, event: events.TurnReleased) -> None:
        self._over(now_us, event.job, event.cause.value)

    def _turn_paused(self, now_us: Micros, event: events.TurnPaused) -> None:
        self._over(now_us, event.job, "paused")

    def _detached(self, now_us: Micros, event: events.Detached) -> None:
        self._over(now_us, event.job, "left")

    def _retried(self, now_us: Micros, command: commands.RetryJob) -> None:
        self._gone(now_us, command.job, "failed")

    def _ended(self, now_us: Micros, command: commands.EndJob) -> None:
        self._gone(now_us, command.job, "ended")

    def _gone(self, now_us: Micros, job: JobId, cause: str) -> None:
        self._over(now_us, job, cause)
        self._lane_of.pop(job, None)

    def _begin(self, number: LaneId, job: JobId, now_us: Micros) -> None:
        lane = self._lane(number)
        self._end(lane, now_us, UNKNOWN)
        lane.begin(now_us, job)

    def _over(self, now_us: Micros, job: JobId, cause: str) -> None:
        number = self._lane_of.get(job)
        lane = None if number is None else self._lanes.get(number)
        if lane is not None and lane.holder == job:
            self._end(lane, now_us, CODES[cause])

    def _end(self, lane: RecordedLane, now_us: Micros, cause: int) -> None:
        lane.end(now_us, cause)
        if lane.full:
            self._put_lane(lane)
