"""Conversion of a daemon's events to marks: the jobs that compute in each lane, waits, and granted memory."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from carpool.facts.fact import UNKNOWN, Fact, MemoryLevel, What
from carpool.facts.fold import ASKED
from carpool.facts.recorded import EventClock, RecordedFacts
from carpool.protocol.api import EventInfo
from carpool.timeline.window import Argument, Begin, End, Mark, Point, Track, TrackGroup, Value

#: Ranks of groups: the daemon, its devices, the jobs by their numbers.
DAEMON, DEVICE, JOB = 0, 1, 1000
BYTES, PERCENT = "bytes", "%"
#: Events and commands about a job that are shown as points.
MOMENTS_OF_JOBS = ASKED | {
    *("CancelRequested", "HoldChanged", "PauseChanged", "JobChanged", "RequeueRequested", "StartFailed", "TraitsSeen"),
    *("SignalJob", "WarnJob", "WarnOfDeviceTime", "TimeOut", "PreemptJob", "Preempted", "RetryJob", "MoveJob"),
    *("AllocateDevices", "StopEngine", "EndJob"),
}
#: The same about devices, and about the daemon.
MOMENTS_OF_DEVICES = frozenset(("DeviceChanged", "DeviceDrained", "PlaceWeights", "DropWeights"))
MOMENTS_OF_DAEMON = frozenset(("RestartBegan", "RestartEnded", "SettingsChanged", "PolicyTimedOut"))
MOMENTS = MOMENTS_OF_JOBS | MOMENTS_OF_DEVICES | MOMENTS_OF_DAEMON
COUNTERS = frozenset(("ForeignMemory", "DeviceLoad", "Sampled"))
#: The tracks of a job, with the names of the slices there; a track has one slice at a time.
SLICES = {
    What.QUEUED: ("state", "queued"),
    What.STARTS: ("state", "starts"),
    What.WAITS: ("state", "waits for its turn"),
    What.TURN: ("state", "computes"),
    What.PERSISTENT: ("persistent memory", "asks for persistent memory"),
    What.EPHEMERAL: ("ephemeral memory", "asks for ephemeral memory"),
    What.MOVE: ("moves", "memory moves to the host store"),
    What.ANSWERS: ("requests", "has requests"),
}
#: The ends that need more words, or none: what comes next says it.
ENDS = {
    UNKNOWN: "unknown: the daemon ended",
    "left": "its process has left the device",
    **dict.fromkeys(("placed", "attached", "turn", "moved", "answered"), ""),
}
TRACKS = tuple(dict.fromkeys(track for track, _ in SLICES.values()))


class Follower:
    """Follows the events of a daemon, starting at any event.  ``says`` describes an event in words."""

    def __init__(self, says: Callable[[EventInfo], str]) -> None:
        self._says = says
        self._now_us = 0
        self._facts = RecordedFacts(EventClock().us)
        self._flow_numbers = itertools.count(1)
        self._flows: dict[int, int] = {}  # from the wish of a job for a turn to that turn
        self._open: dict[Track, str] = {}
        self._sizes: dict[tuple[int | None, int | None], int] = {}
        self._sums: Counter[Track] = Counter()
        self._marks: list[Mark] = []  # of the current event
        self._names: dict[int, str] = {}

    def follow(self, events: Iterable[EventInfo]) -> Iterator[Mark]:
        """Yield the marks in order; slices that have not ended stay open."""
        for event in events:
            self._follow(event)
            if self._marks:
                yield from self._marks
                self._marks.clear()

    def _follow(self, event: EventInfo) -> None:
        kind, found = event.kind, self._facts.read(event)
        data: dict[str, Any] = event.data
        self._now_us = self._facts.now_us
        if kind == "RestartBegan":
            self._sizes, self._sums = {}, Counter()
        elif kind == "Submitted" and (name := data.get("spec", {}).get("name")):
            self._names[data["job"]] = name
        for told in found:
            if not isinstance(told, Fact):
                self._level(told)
            elif told.end_us is None:
                self._begun(told, data)
            else:
                self._ended(told)
        if kind in COUNTERS and data:
            self._figure(kind, data)
        elif kind in MOMENTS:
            self._moment(event)

    # Facts

    def _begun(self, fact: Fact, data: dict[str, Any]) -> None:
        if fact.what not in SLICES:
            return
        if fact.what == What.WAITS:
            self._flows[fact.job] = next(self._flow_numbers)
        flow = self._flows.get(fact.job) if fact.what in (What.WAITS, What.TURN) else None
        flows = () if flow is None else (flow,)
        own, now_ns = self._own(fact), self._now_us * 1000
        self._begin(
            fact.what,
            Begin(now_ns, own, SLICES[fact.what][1], {} if fact.what == What.TURN else _about(fact, data), flows),
        )
        if fact.what == What.TURN:
            self._flows.pop(fact.job, None)
            if fact.lane is not None:
                lane = _of_lane(fact.device, fact.lane)
                self._begin(fact.what, Begin(now_ns, lane, own.group.name, {}, flows, fact.job))

    def _begin(self, what: str, begin: Begin) -> None:
        """Begin a slice on a track that has one slice at a time: an open slice ends."""
        if begin.track in self._open:
            self._marks.append(End(begin.time_ns, begin.track))
        self._open[begin.track] = what
        self._marks.append(begin)

    def _ended(self, fact: Fact) -> None:
        if fact.what not in SLICES:
            return
        end = ENDS.get(fact.how, fact.how)
        arguments: dict[str, Argument] = {"end": end} if end else {}
        if fact.text:
            arguments["reason"] = fact.text
        if fact.usage is not None:
            usage = fact.usage
            arguments |= {"iterations": usage.iterations, "device_us": usage.device_us, "residue": usage.residue}
        if fact.what == What.TURN and fact.lane is not None:
            self._end(_of_lane(fact.device, fact.lane), fact, arguments)
        self._end(self._own(fact), fact, arguments)
        if fact.usage is not None:
            self._alive(fact.job, fact.usage.persistent_live + fact.usage.ephemeral_live)

    def _end(self, track: Track, fact: Fact, arguments: dict[str, Argument]) -> None:
        if self._open.get(track) == fact.what:
            del self._open[track]
            self._marks.append(End((fact.end_us or self._now_us) * 1000, track, arguments))

    def _own(self, fact: Fact) -> Track:
        """Return the track of a job on which a fact is shown."""
        return _of_job(fact.job, self._names.get(fact.job, ""), SLICES[fact.what][0])

    def _level(self, level: MemoryLevel) -> None:
        if not level.device:
            return
        track = _counter(level.device, "memory of lanes" if level.job is None else "persistent memory granted", BYTES)
        place = level.job, level.lane
        self._sums[track] += level.size - self._sizes.pop(place, 0)
        if level.size:
            self._sizes[place] = level.size
        self._value(track, self._sums[track])

    # Figures and moments, which need no fold

    def _figure(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "ForeignMemory":
            self._value(_counter(data["device"], "memory of others", BYTES), data["size"])
        elif kind == "DeviceLoad" and data.get("load") is not None:
            self._value(_counter(data["device"], "load", PERCENT), data["load"]["active_ppm"] / 10_000)
        elif kind == "Sampled" and "persistent_live" in data["usage"]:
            self._alive(data["job"], data["usage"]["persistent_live"] + data["usage"]["ephemeral_live"])

    def _alive(self, job: int, size: int) -> None:
        self._value(_of_job(job, self._names.get(job, ""), "memory alive", BYTES), size)

    def _value(self, track: Track, value: float) -> None:
        self._marks.append(Value(self._now_us * 1000, track, value))

    def _moment(self, event: EventInfo) -> None:
        track = None
        if event.kind in MOMENTS_OF_JOBS and event.job is not None and event.data:
            track = _of_job(event.job, self._names.get(event.job, ""), "state")
        elif event.kind in MOMENTS_OF_DEVICES:
            device = str(event.data.get("device", ""))
            track = Track(_device(device), "changes", 0, device=device)
        elif event.kind in MOMENTS_OF_DAEMON:
            track = Track(TrackGroup("daemon", DAEMON), "changes")
        if track is not None:
            words = str(event.data["outcome"]) if event.kind == "EndJob" else self._says(event)
            self._marks.append(Point(self._now_us * 1000, track, words, _reason(event.data)))


@functools.lru_cache(4096)
def _of_job(job: int, called: str, name: str, unit: str = "") -> Track:
    rank = TRACKS.index(name) if name in TRACKS else len(TRACKS)
    return Track(TrackGroup(f"job {job} {called}".rstrip(), JOB + job), name, rank, unit, job=job)


@functools.lru_cache(4096)
def _of_lane(device: str, lane: int) -> Track:
    return Track(_device(device), f"lane {lane}", lane, device=device)


@functools.cache
def _counter(device: str, name: str, unit: str) -> Track:
    return Track(_device(device), name, -1, unit, device=device)


def _device(device: str) -> TrackGroup:
    return TrackGroup(device or "device unknown", DEVICE)


def _about(fact: Fact, data: dict[str, Any]) -> dict[str, Argument]:
    """Return what is known of a job's slice at its beginning."""
    if fact.what == What.QUEUED:
        return {"attempt": data["attempt"]} if "attempt" in data else {"owner": fact.owner or 0}
    if fact.what == What.STARTS and fact.lane is not None:
        placed = {"placed_by": data["decision"]["policy"]} if data.get("decision") else {}
        return {"device": fact.device, "lane": fact.lane, **placed}
    if fact.what == What.WAITS:
        return {"urgent": True} if data.get("urgent") else {}
    return {"bytes": fact.size} if fact.size else {}


def _reason(data: dict[str, Any]) -> dict[str, Argument]:
    """Return the reason that an event gives, if any."""
    reason = data.get("reason")
    if isinstance(reason, dict):
        return {"reason": str(reason.get("text") or reason.get("code"))}
    return {name: str(data[name]) for name in ("text", "why", "by") if data.get(name)}
