"""From what the core is told and decides to turns of lanes, as they end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from carpool.core import commands, events
from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import DeviceId, JobId, LaneId, Micros
from carpool.daemon.journal.turn_blocks import TurnSpan, one_turn
from carpool.daemon.system.clock import wall_us


@dataclass(slots=True)
class TurnLane:
    """``spans``: those that are in no block yet; ``latest_us``: nothing begins before, whatever the clock says."""

    device: DeviceId
    lane: LaneId
    owner: int
    spans: list[TurnSpan] = field(default_factory=list)
    holder: JobId | None = None
    since_us: Micros = 0
    latest_us: Micros = 0

    def begin(self, job: JobId) -> None:
        """Its turn begins; that of another job, of which nobody has said that it ended, is over."""
        if self.holder not in (None, job):
            self.end("unknown")
        if self.holder is None:
            self.holder, self.since_us = job, self._now()

    def end(self, cause: str) -> None:
        """The holder's turn is over."""
        assert self.holder is not None
        self.spans.extend(one_turn(self.since_us, self._now(), self.holder, cause))
        self.holder = None

    def taken(self) -> list[TurnSpan]:
        """What is in no block yet: the caller makes one of it."""
        spans, self.spans = self.spans, []
        return spans

    def _now(self) -> Micros:
        self.latest_us = max(self.latest_us, wall_us())
        return self.latest_us


class TurnRecorder:
    """``heard`` is told of everything.  ``ended`` hears of a lane after each of its turns, ``closed`` at its end."""

    def __init__(
        self,
        owner_of: Callable[[JobId], int | None],
        ended: Callable[[TurnLane], None],
        closed: Callable[[TurnLane], None],
    ) -> None:
        self._owner_of, self._ended, self._closed = owner_of, ended, closed
        self._devices: dict[LaneId, DeviceId] = {}
        self._lane_of: dict[JobId, LaneId] = {}
        self.lanes: dict[LaneId, TurnLane] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            commands.StartJob: self._placed,
            commands.MoveJob: self._moved,
            commands.OpenLane: self._opened,
            commands.CloseLane: self._lane_closed,
            commands.GrantTurn: lambda command: self._begin(command.job, command.lane),
            commands.EndJob: self._left,
            commands.RetryJob: self._left,
            events.Adopted: self._adopted,
            events.Detached: lambda event: self._end(event.job, "left"),
            events.TurnPassed: self._passed,
            events.TurnReleased: lambda event: self._end(event.job, event.cause.value),
            events.TurnPaused: lambda event: self._end(event.job, "paused"),
        }

    def heard(self, now_us: Micros, happened: Event | Command) -> None:
        """``now_us``: the core's time, which is not needed: turns are kept with the wall clock's."""
        handler = self._handlers.get(type(happened))
        if handler is not None:
            handler(happened)

    def close(self) -> None:
        """The daemon ends: turns that go on are recorded as far as they are known."""
        for lane in self.lanes.values():
            if lane.holder is not None:
                self._end(lane.holder, "unknown")

    def _opened(self, command: commands.OpenLane) -> None:
        self._devices[command.lane] = command.device

    def _lane_closed(self, command: commands.CloseLane) -> None:
        self._devices.pop(command.lane, None)
        lane = self.lanes.pop(command.lane, None)
        if lane is not None:
            self._closed(lane)

    def _placed(self, command: commands.StartJob) -> None:
        self._lane_of[command.job], self._devices[command.lane] = command.lane, command.device

    def _moved(self, command: commands.MoveJob) -> None:
        self._lane_of[command.job] = command.lane

    def _adopted(self, event: events.Adopted) -> None:
        if event.lane is not None:
            self._lane_of[event.job], self._devices[event.lane] = event.lane, event.device
            if event.holds_turn and not event.paused:
                self._begin(event.job, event.lane)

    def _passed(self, event: events.TurnPassed) -> None:
        lane = self._lane_of.get(event.job)
        self._end(event.job, event.cause.value)
        if lane is not None:
            self._begin(event.to, lane)

    def _left(self, command: commands.EndJob | commands.RetryJob) -> None:
        self._end(command.job, "left")
        self._lane_of.pop(command.job, None)

    def _begin(self, job: JobId, number: LaneId) -> None:
        self._lane_of[job] = number
        lane = self._lane(number, self._owner_of(job))
        if lane is not None:
            lane.begin(job)

    def _end(self, job: JobId, cause: str) -> None:
        number = self._lane_of.get(job)
        lane = None if number is None else self.lanes.get(number)
        if lane is not None and lane.holder == job:
            lane.end(cause)
            self._ended(lane)

    def _lane(self, number: LaneId, owner: int | None) -> TurnLane | None:
        device = self._devices.get(number)
        if device is None or owner is None:
            return None
        if number not in self.lanes:
            self.lanes[number] = TurnLane(device, number, owner)
        return self.lanes[number]
