"""From a daemon's events to marks: which job computed in which lane, waits, and how much memory was granted."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from carpool.protocol.api import EventInfo
from carpool.timeline.clock import EventClock
from carpool.timeline.marks import Argument, Begin, End, Mark, Point, Track, TrackGroup, Value

#: Ranks of groups: the daemon, its devices, the jobs by their numbers.
DAEMON, DEVICE, JOB = 0, 1, 1000
BYTES, PERCENT = "bytes", "%"
CLASSES = ("persistent", "ephemeral")
#: Events and commands about a job that are shown as points.
MOMENTS_OF_JOBS = frozenset((
    *("CancelRequested", "HoldChanged", "PauseChanged", "JobChanged", "RequeueRequested", "StartFailed", "TraitsSeen"),
    *("SignalJob", "WarnJob", "WarnOfDeviceTime", "TimeOut", "PreemptJob", "Preempted", "RetryJob", "MoveJob"),
    *("DenyTurn", "RequestYield", "WithdrawYield", "PauseTurn", "AllocateDevices"),
))  # fmt: skip
#: The same about devices, and about the daemon.
MOMENTS_OF_DEVICES = frozenset(("DeviceChanged", "DeviceDrained", "PlaceWeights", "DropWeights"))
MOMENTS_OF_DAEMON = frozenset(("RestartBegan", "RestartEnded", "SettingsChanged", "PolicyTimedOut"))
_MOMENTS = MOMENTS_OF_JOBS | MOMENTS_OF_DEVICES | MOMENTS_OF_DAEMON


@dataclass(slots=True)
class FollowedJob:
    """``granted``: persistent memory; ``flow``: the arrow from the job's request for a turn to that turn."""

    name: str
    track: Track
    asks: dict[str, Track]  # by the class of memory
    moves: Track
    alive: Track
    device: str = ""
    lane: int | None = None
    granted: int = 0
    flow: int = 0

    @classmethod
    def of(cls, number: int, name: str) -> FollowedJob:
        """Make the tracks of job ``number``.  ``name`` may be empty."""
        group = TrackGroup(f"job {number} {name}".rstrip(), JOB + number)
        asks = {kind: Track(group, f"{kind} memory", rank, job=number) for rank, kind in enumerate(CLASSES, 1)}
        alive = Track(group, "memory alive", 4, BYTES, job=number)
        state, moves = Track(group, "state", 0, job=number), Track(group, "moves", 3, job=number)
        return cls(name, state, asks, moves, alive)


@dataclass(slots=True)
class FollowedLane:
    """``size``: bytes; ``holder``: the job that has the lane's turn."""

    track: Track
    device: str
    size: int = 0
    holder: int | None = None


@dataclass(slots=True)
class _State:
    jobs: dict[int, FollowedJob] = field(default_factory=dict)
    lanes: dict[int, FollowedLane] = field(default_factory=dict)
    open: set[Track] = field(default_factory=set)
    granted: Counter[str] = field(default_factory=Counter)  # persistent memory, by device
    sizes: Counter[str] = field(default_factory=Counter)  # of lanes, by device


class Follower:
    """Follows the events of a daemon, starting at any event.  ``says`` describes an event in words."""

    def __init__(self, says: Callable[[EventInfo], str]) -> None:
        self._says = says
        self._clock = EventClock()
        self._now = 0
        self._state = _State()
        self._flows = itertools.count(1)
        self._marks: list[Mark] = []  # of the current event
        self._names: dict[int, str] = {}  # of jobs that have ended: a journal has hundreds of thousands

    def follow(self, events: Iterable[EventInfo]) -> Iterator[Mark]:
        """Yield the marks in order; slices that have not ended stay open."""
        for event in events:
            self._follow(event)
            if self._marks:
                yield from self._marks
                self._marks.clear()

    def _follow(self, event: EventInfo) -> None:
        before, self._now = self._now, self._clock.ns(event)
        if event.kind == "RestartBegan":
            self._lost(before)
        if not event.data and event.job is not None:  # another user's job, whose details are hidden
            return
        if event.kind in _MOMENTS:
            self._moment(event)
        handler = _HANDLERS.get(event.kind)
        if handler is not None and event.data:  # else a lane's or a model's number is withheld, too
            handler(self, event.data)

    # Jobs and lanes

    def _job(self, number: int, name: str = "") -> FollowedJob:
        found = self._state.jobs.get(number)
        if found is None:
            found = self._state.jobs[number] = FollowedJob.of(number, name or self._names.get(number, ""))
        return found

    def _lane(self, number: int, device: str = "") -> FollowedLane:
        found = self._state.lanes.get(number)
        if found is None:
            track = Track(_group(device), f"lane {number}", number, device=device)
            found = self._state.lanes[number] = FollowedLane(track, device)
        return found

    # Slices

    def _begin(self, track: Track, name: str, flows: tuple[int, ...] = (), job: int | None = None, **arguments: Argument) -> None:  # fmt: skip  # noqa: E501
        """Begin a slice on a track that has one slice at a time: an open slice ends."""
        self._end(track)
        self._state.open.add(track)
        self._marks.append(Begin(self._now, track, name, arguments, flows, job))

    def _end(self, track: Track, **arguments: Argument) -> None:
        if track in self._state.open:
            self._state.open.remove(track)
            self._marks.append(End(self._now, track, arguments))

    def _lost(self, at_ns: int) -> None:
        """End all slices: the daemon has ended, and what happened until the next daemon started is not known."""
        for track in sorted(self._state.open):
            self._marks.append(End(at_ns, track, {"end": "unknown: the daemon ended"}))
        self._state = _State(jobs=self._state.jobs)
        for job in self._state.jobs.values():
            job.lane, job.granted, job.flow = None, 0, 0

    def _moment(self, event: EventInfo) -> None:
        track = None
        if event.kind in MOMENTS_OF_JOBS and event.job is not None:
            track = self._job(event.job).track
        elif event.kind in MOMENTS_OF_DEVICES:
            device = str(event.data.get("device", ""))
            track = Track(_group(device), "changes", 0, device=device)
        elif event.kind in MOMENTS_OF_DAEMON:
            track = Track(TrackGroup("daemon", DAEMON), "changes")
        if track is not None:
            self._marks.append(Point(self._now, track, self._says(event), _reason(event.data)))

    # Lives of jobs

    def _submitted(self, data: dict[str, Any]) -> None:
        spec = data["spec"]
        job = self._job(data["job"], spec.get("name") or "")
        owner = {"owner": spec["owner"]} if "owner" in spec else {}
        self._begin(job.track, "queued", **owner)

    def _start_job(self, data: dict[str, Any]) -> None:
        job = self._placed(data["job"], data["device"], data["lane"])
        decision = data.get("decision") or {}
        by = {"placed_by": decision["policy"]} if "policy" in decision else {}
        self._begin(job.track, "starts", device=data["device"], lane=data["lane"], **by)

    def _attached(self, data: dict[str, Any]) -> None:
        self._end(self._job(data["job"]).track)

    def _adopted(self, data: dict[str, Any]) -> None:
        job = self._placed(data["job"], data["device"], data["lane"])
        self._granted(job, data["granted"]["persistent"])
        if data["holds_turn"] and not data.get("paused"):
            self._computes(data["job"], job.lane)
        elif data["wants_turn"]:
            self._turn_wanted(data)
        elif data["attached"]:
            self._end(job.track)

    def _placed(self, number: int, device: str, lane: int | None) -> FollowedJob:
        job = self._job(number)
        job.device, job.lane = device, lane
        if lane is not None:
            self._lane(lane, device)
        return job

    def _move_job(self, data: dict[str, Any]) -> None:
        self._job(data["job"]).lane = data["lane"]

    def _retry_job(self, data: dict[str, Any]) -> None:
        self._over(data["job"], end="failed", text=str(data["past"].get("text", "")))
        self._begin(self._job(data["job"]).track, "queued", attempt=data["attempt"])

    def _end_job(self, data: dict[str, Any]) -> None:
        self._over(data["job"], outcome=data["outcome"], **_reason(data))
        self._marks.append(Point(self._now, self._job(data["job"]).track, data["outcome"], _reason(data)))
        self._forget(data["job"])

    def _forget(self, number: int) -> None:
        """Forget a job except for its name, by which its tracks are found again."""
        job = self._state.jobs.pop(number)
        if job.name:
            self._names[number] = job.name

    def _detached(self, data: dict[str, Any]) -> None:
        self._turn_over(data["job"], end="its process has left the device")

    def _over(self, number: int, **arguments: Argument) -> None:
        """End an attempt, and with it all slices of the job."""
        job = self._job(number)
        self._turn_over(number, **arguments)
        for track in (job.track, *job.asks.values(), job.moves):
            self._end(track, **arguments)
        job.lane = None
        self._granted(job, 0)

    # Turns

    def _turn_wanted(self, data: dict[str, Any]) -> None:
        job = self._job(data["job"])
        job.flow = next(self._flows)
        urgent = {"urgent": True} if data.get("urgent") else {}
        self._begin(job.track, "waits for its turn", (job.flow,), **urgent)

    def _grant_turn(self, data: dict[str, Any]) -> None:
        self._computes(data["job"], data["lane"])

    def _turn_passed(self, data: dict[str, Any]) -> None:
        """Record a hand-over between two jobs, which happens without the daemon."""
        lane = self._job(data["job"]).lane
        self._turn_released(data)
        if data.get("to") is not None:
            self._computes(data["to"], lane)

    def _turn_released(self, data: dict[str, Any]) -> None:
        usage, job = data.get("usage") or {}, data["job"]
        self._turn_over(job, end=str(data.get("cause", "paused")), **_counted(usage))
        self._used(data)

    def _computes(self, number: int, lane_number: int | None) -> None:
        job = self._job(number)
        flows, job.flow = ((job.flow,) if job.flow else ()), 0
        self._begin(job.track, "computes", flows)
        if lane_number is not None:
            job.lane = lane_number
            lane = self._lane(lane_number, job.device)
            lane.holder = number
            self._begin(lane.track, job.track.group.name, flows, number)

    def _turn_over(self, number: int, **arguments: Argument) -> None:
        job = self._job(number)
        lane = self._state.lanes.get(job.lane) if job.lane is not None else None
        if lane is not None and lane.holder == number:
            lane.holder = None
            self._end(lane.track, **arguments)
            self._end(job.track, **arguments)

    # Memory

    def _memory_requested(self, data: dict[str, Any]) -> None:
        kind = data["memory_class"]
        self._begin(self._job(data["job"]).asks[kind], f"asks for {kind} memory", bytes=data["total"])

    def _memory_granted(self, data: dict[str, Any]) -> None:
        job = self._job(data["job"])
        if data.get("answers"):
            self._end(job.asks[data["answers"]], end="granted")
        self._granted(job, data["memory"]["persistent"])

    def _memory_denied(self, data: dict[str, Any]) -> None:
        self._end(self._job(data["job"]).asks[data["memory_class"]], end="denied", **_reason(data))

    def _request_withdrawn(self, data: dict[str, Any]) -> None:
        self._end(self._job(data["job"]).asks[data["memory_class"]], end="withdrawn")

    def _offload(self, data: dict[str, Any]) -> None:
        self._begin(self._job(data["job"]).moves, "memory moves to the host store")

    def _offloaded(self, data: dict[str, Any]) -> None:
        failed = {"end": data["text"]} if "text" in data else {}
        self._end(self._job(data["job"]).moves, **failed)

    def _lane_sized(self, data: dict[str, Any]) -> None:
        self._sized(self._lane(data["lane"], data.get("device", "")), data["size"])

    def _lane_closed(self, data: dict[str, Any]) -> None:
        lane = self._state.lanes.pop(data["lane"], None)
        if lane is not None:
            self._end(lane.track)
            self._sized(lane, 0)

    def _granted(self, job: FollowedJob, size: int) -> None:
        self._state.granted[job.device] += size - job.granted
        job.granted = size
        self._sum(job.device, "persistent memory granted", self._state.granted)

    def _sized(self, lane: FollowedLane, size: int) -> None:
        self._state.sizes[lane.device] += size - lane.size
        lane.size = size
        self._sum(lane.device, "memory of lanes", self._state.sizes)

    def _sum(self, device: str, name: str, sums: Counter[str]) -> None:
        if device:
            self._value(device, name, sums[device], BYTES)

    def _foreign(self, data: dict[str, Any]) -> None:
        self._value(data["device"], "memory of others", data["size"], BYTES)

    def _load(self, data: dict[str, Any]) -> None:
        load = data.get("load")
        if load is not None:
            self._value(data["device"], "load", load["active_ppm"] / 10_000, PERCENT)

    def _value(self, device: str, name: str, value: float, unit: str) -> None:
        self._marks.append(Value(self._now, _counter(device, name, unit), value))

    def _used(self, data: dict[str, Any]) -> None:
        usage = data.get("usage") or {}
        if "persistent_live" in usage:
            alive = usage["persistent_live"] + usage["ephemeral_live"]
            self._marks.append(Value(self._now, self._job(data["job"]).alive, alive))


@functools.cache
def _counter(device: str, name: str, unit: str) -> Track:
    return Track(_group(device), name, -1, unit, device=device)


def _group(device: str) -> TrackGroup:
    return TrackGroup(device or "device unknown", DEVICE)


def _counted(usage: dict[str, Any]) -> dict[str, Argument]:
    return {name: usage[name] for name in ("iterations", "device_us", "residue") if name in usage}


def _reason(data: dict[str, Any]) -> dict[str, Argument]:
    """Return the reason that an event gives, if any."""
    reason = data.get("reason")
    if isinstance(reason, dict):
        return {"reason": str(reason.get("text") or reason.get("code"))}
    return {name: str(data[name]) for name in ("text", "why", "by") if data.get(name)}


#: Handlers by the class name of the event or command.
_HANDLERS: dict[str, Callable[[Follower, dict[str, Any]], None]] = {
    "Submitted": Follower._submitted,
    "StartJob": Follower._start_job,
    "Attached": Follower._attached,
    "Adopted": Follower._adopted,
    "MoveJob": Follower._move_job,
    "RetryJob": Follower._retry_job,
    "EndJob": Follower._end_job,
    "Detached": Follower._detached,
    "TurnWanted": Follower._turn_wanted,
    "GrantTurn": Follower._grant_turn,
    "TurnPassed": Follower._turn_passed,
    "TurnReleased": Follower._turn_released,
    "TurnPaused": Follower._turn_released,
    "MemoryRequested": Follower._memory_requested,
    "GrantMemory": Follower._memory_granted,
    "DenyMemory": Follower._memory_denied,
    "RequestWithdrawn": Follower._request_withdrawn,
    "Offload": Follower._offload,
    "Offloaded": Follower._offloaded,
    "OffloadFailed": Follower._offloaded,
    "OpenLane": Follower._lane_sized,
    "ResizeLane": Follower._lane_sized,
    "CloseLane": Follower._lane_closed,
    "ForeignMemory": Follower._foreign,
    "DeviceLoad": Follower._load,
    "Sampled": Follower._used,
}
