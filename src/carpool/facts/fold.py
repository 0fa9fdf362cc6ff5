"""The fold: the events and commands of one daemon, in order, become facts.  It may begin with any event.

The names of events and commands about turns, for those who treat events by their kind without folding them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from carpool.core import commands, events
from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import DeviceId, JobId, LaneId, Micros, Usage
from carpool.facts.fact import UNKNOWN, Fact, MemoryLevel, Told, What

#: What the core asks of a job that has a turn, or refuses to one that wants a turn.
ASKED = frozenset(
    kind.__name__ for kind in (commands.DenyTurn, commands.PauseTurn, commands.RequestYield, commands.WithdrawYield)
)
#: Kinds of which there are some with each turn.
FREQUENT = frozenset(
    kind.__name__
    for kind in (
        *(events.TurnWanted, events.TurnReleased, events.TurnPassed, events.TurnPaused, commands.GrantTurn),
        *(commands.PauseTurn, commands.NameSuccessor, commands.RequestYield, commands.WithdrawYield),
    )
)


@dataclass(slots=True)
class FoldedJob:
    """``open``: what goes on."""

    device: DeviceId = ""
    lane: LaneId | None = None
    owner: int | None = None
    open: dict[str, Fact] = field(default_factory=dict)


@dataclass(slots=True)
class FoldedLane:
    """``holder``: the job that has the lane's turn."""

    device: DeviceId = ""
    owner: int | None = None
    holder: JobId | None = None


_UNKNOWN_JOB, _UNKNOWN_LANE = FoldedJob(), FoldedLane()  # never changed


class Fold:
    """Takes each event before the commands that follow from it, with its time, on any axis.

    ``now_us``: the time of the latest event; who passes over events may set it.
    """

    def __init__(self) -> None:
        self.now_us: Micros = 0
        self._told: list[Told] = []
        self._jobs: dict[JobId, FoldedJob] = {}
        self._lanes: dict[LaneId, FoldedLane] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.RestartBegan: lambda event: None,
            events.Submitted: self._submitted,
            events.Adopted: self._adopted,
            events.Attached: lambda event: self._end(event.job, What.STARTS, "attached"),
            events.Detached: self._detached,
            events.TurnWanted: lambda event: self._begin(event.job, What.WAITS),
            events.TurnPaused: self._turn_paused,
            events.TurnReleased: self._turn_released,
            events.TurnPassed: self._turn_passed,
            events.MemoryRequested: lambda event: self._begin(event.job, str(event.memory_class), event.total),
            events.RequestWithdrawn: lambda event: self._end(event.job, str(event.memory_class), "withdrawn"),
            events.Offloaded: lambda event: self._end(event.job, What.MOVE, "moved", told=True),
            events.OffloadFailed: lambda event: self._end(event.job, What.MOVE, "not moved", event.text, told=True),
            events.ServiceBusy: self._service_busy,
            commands.OpenLane: self._lane_opened,
            commands.ResizeLane: lambda command: self._lane_has(command.lane, command.size),
            commands.CloseLane: self._lane_closed,
            commands.StartJob: self._started,
            commands.MoveJob: self._moved,
            commands.GrantTurn: lambda command: self._computes(command.job, command.lane),
            commands.DenyTurn: lambda command: self._end(command.job, What.WAITS, "denied", command.reason.text),
            commands.GrantMemory: self._memory_granted,
            commands.DenyMemory: self._memory_denied,
            commands.Offload: lambda command: self._begin(command.job, What.MOVE),
            commands.RetryJob: self._retried,
            commands.EndJob: self._ended,
        }

    @property
    def kinds(self) -> Iterable[type]:
        """The events and commands that can tell a fact."""
        return self._handlers

    def happened(self, now_us: Micros, happened: Event | Command) -> Sequence[Told]:
        """Return what begins, ends or changes with this event or command."""
        if type(happened) is events.RestartBegan:  # what was lost ended with the event before, at the latest
            self._lose()
        self.now_us = now_us
        handler = self._handlers.get(type(happened))
        if handler is not None:
            handler(happened)
        return self._all_told()

    def lost(self) -> Sequence[Told]:
        """End all that goes on: from the last event on nothing is known."""
        self._lose()
        return self._all_told()

    def _all_told(self) -> Sequence[Told]:
        if not self._told:
            return ()
        told, self._told = self._told, []
        return told

    # Facts

    def _job(self, number: JobId) -> FoldedJob:
        found = self._jobs.get(number)
        if found is None:
            found = self._jobs[number] = FoldedJob()
        return found

    def _lane(self, number: LaneId) -> FoldedLane:
        found = self._lanes.get(number)
        if found is None:
            found = self._lanes[number] = FoldedLane()
        return found

    def _begin(self, number: JobId, what: str, size: int = 0) -> None:
        """Begin a fact about a job, unless it goes on already."""
        job = self._job(number)
        if what not in job.open:
            job.open[what] = fact = self._fact(number, what, self.now_us, size)
            self._told.append(fact)

    def _fact(self, number: JobId, what: str, start_us: Micros | None, size: int = 0) -> Fact:
        job = self._jobs.get(number, _UNKNOWN_JOB)
        lane = _UNKNOWN_LANE if job.lane is None else self._lanes.get(job.lane, _UNKNOWN_LANE)
        owner = lane.owner if lane.owner is not None else job.owner
        return Fact(what, number, start_us, lane.device or job.device, job.lane, owner, None, "", None, size)

    def _end(
        self, number: JobId, what: str, how: str, text: str = "", *, usage: Usage | None = None, told: bool = False
    ) -> None:
        """End a fact if it goes on; ``told``: in any case, because the event itself tells of it."""
        job = self._jobs.get(number)
        fact = None if job is None else job.open.pop(what, None)
        if fact is not None or told:
            known = fact or self._fact(number, what, None)
            place = known.device, known.lane, known.owner
            whole = Fact(what, number, known.start_us, *place, self.now_us, how, usage, known.size, text)
            self._told.append(whole)

    def _over(self, number: JobId, how: str, text: str = "") -> None:
        """End all that goes on about a job."""
        self._turn_ends(number, how)
        for what in list(self._job(number).open):
            self._end(number, what, how, text)

    # Jobs

    def _submitted(self, event: events.Submitted) -> None:
        self._job(event.job).owner = event.spec.owner
        self._begin(event.job, What.QUEUED)

    def _started(self, command: commands.StartJob) -> None:
        self._place(command.job, command.device, command.lane)
        self._begin(command.job, What.STARTS)

    def _place(self, number: JobId, device: DeviceId, lane: LaneId | None) -> None:
        job = self._job(number)
        job.device, job.lane = device, lane
        if lane is not None:
            self._lane(lane).device = device
        self._end(number, What.QUEUED, "placed")

    def _moved(self, command: commands.MoveJob) -> None:
        self._job(command.job).lane = command.lane

    def _adopted(self, event: events.Adopted) -> None:
        self._place(event.job, event.device, event.lane)
        self._granted(event.job, event.granted.persistent)
        if event.holds_turn and event.paused:
            self._begin(event.job, What.PAUSE)
        elif event.holds_turn:
            self._computes(event.job, event.lane)
        elif event.wants_turn:
            self._begin(event.job, What.WAITS)
        elif not event.attached:
            self._begin(event.job, What.STARTS)

    def _detached(self, event: events.Detached) -> None:
        self._turn_ends(event.job, "left")
        for what in (What.WAITS, What.PAUSE, What.PERSISTENT, What.EPHEMERAL):
            self._end(event.job, what, "left")

    def _retried(self, command: commands.RetryJob) -> None:
        self._over(command.job, "failed", command.past.text)
        self._granted(command.job, 0)
        self._job(command.job).lane = None
        self._begin(command.job, What.QUEUED)

    def _ended(self, command: commands.EndJob) -> None:
        self._over(command.job, "ended", command.outcome)
        self._granted(command.job, 0)
        del self._jobs[command.job]

    def _lose(self) -> None:
        for number in self._jobs:
            self._over(number, UNKNOWN)
        self._jobs, self._lanes = {}, {}

    # Turns

    def _computes(self, number: JobId, lane_number: LaneId | None) -> None:
        job = self._job(number)
        self._end(number, What.WAITS, "turn")
        self._end(number, What.PAUSE, "turn")
        self._turn_ends(number, UNKNOWN)
        if lane_number is not None:
            job.lane, lane = lane_number, self._lane(lane_number)
            if lane.holder is not None:
                self._turn_ends(lane.holder, UNKNOWN)
            lane.holder = number
            lane.owner = lane.owner if lane.owner is not None else job.owner
        self._begin(number, What.TURN)

    def _turn_ends(self, number: JobId, how: str, usage: Usage | None = None, *, told: bool = False) -> None:
        job = self._jobs.get(number)
        lane = None if job is None or job.lane is None else self._lanes.get(job.lane)
        if lane is not None and lane.holder == number:
            lane.holder = None
        self._end(number, What.TURN, how, usage=usage, told=told)

    def _turn_paused(self, event: events.TurnPaused) -> None:
        self._turn_ends(event.job, "paused", event.usage, told=True)
        self._begin(event.job, What.PAUSE)

    def _service_busy(self, event: events.ServiceBusy) -> None:
        if event.busy:
            self._begin(event.job, What.ANSWERS)
        else:
            self._end(event.job, What.ANSWERS, "answered")

    def _turn_released(self, event: events.TurnReleased) -> None:
        self._turn_ends(event.job, event.cause, event.usage, told=True)
        self._end(event.job, What.PAUSE, event.cause)

    def _turn_passed(self, event: events.TurnPassed) -> None:
        self._turn_ends(event.job, event.cause, event.usage, told=True)
        job = self._jobs.get(event.job)
        self._computes(event.to, None if job is None else job.lane)

    # Memory

    def _memory_granted(self, command: commands.GrantMemory) -> None:
        if command.answers is not None:
            self._end(command.job, str(command.answers), "granted", told=True)
        self._granted(command.job, command.memory.persistent)

    def _memory_denied(self, command: commands.DenyMemory) -> None:
        self._end(command.job, str(command.memory_class), "denied", command.reason.text, told=True)

    def _granted(self, number: JobId, size: int) -> None:
        self._told.append(MemoryLevel(self._job(number).device, number, None, size))

    def _lane_opened(self, command: commands.OpenLane) -> None:
        lane = self._lane(command.lane)
        lane.device, lane.owner = command.device, command.owner
        self._lane_has(command.lane, command.size)

    def _lane_has(self, number: LaneId, size: int) -> None:
        self._told.append(MemoryLevel(self._lane(number).device, None, number, size))

    def _lane_closed(self, command: commands.CloseLane) -> None:
        lane = self._lane(command.lane)
        if lane.holder is not None:
            self._turn_ends(lane.holder, UNKNOWN)
        self._lane_has(command.lane, 0)
        del self._lanes[command.lane]


class FactFeed:
    """Tells listeners the facts of a daemon, as they begin and end."""

    def __init__(self, *takers: Callable[[Told], None]) -> None:
        self._takers = takers
        self._fold = Fold()

    def happened(self, now_us: Micros, happened: Event | Command) -> None:
        """Take every event and command, in order."""
        self._tell(self._fold.happened(now_us, happened))

    def close(self) -> None:
        """End all facts: how they go on without the daemon is not known."""
        self._tell(self._fold.lost())

    def _tell(self, found: Sequence[Told]) -> None:
        for told in found:
            for take in self._takers:
                take(told)
