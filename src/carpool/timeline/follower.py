"""From a daemon's events to marks: which job computed in which lane, waits, and how much memory was granted."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from carpool.facts.fact import Fact, MemoryLevel, What
from carpool.facts.kinds import ASKED
from carpool.facts.recorded import EventClock, RecordedFacts
from carpool.protocol.api import EventInfo
from carpool.timeline.marks import Argument, Begin, End, Mark, Point, Track, TrackGroup, Value

#: Ranks of groups: the daemon, its devices, the jobs by their numbers.
DAEMON, DEVICE, JOB = 0, 1, 1000
BYTES, PERCENT = "bytes", "%"
#: Events and commands about a job that are shown as points.
MOMENTS_OF_JOBS = ASKED | {
    *("CancelRequested", "HoldChanged", "PauseChanged", "JobChanged", "RequeueRequested", "StartFailed", "TraitsSeen"),
    *("SignalJob", "WarnJob", "WarnOfDeviceTime", "TimeOut", "PreemptJob", "Preempted", "RetryJob", "MoveJob"),
    *("AllocateDevices", "EndJob"),
}
#: The same about devices, and about the daemon.
MOMENTS_OF_DEVICES = frozenset(("DeviceChanged", "DeviceDrained", "PlaceWeights", "DropWeights"))
MOMENTS_OF_DAEMON = frozenset(("RestartBegan", "RestartEnded", "SettingsChanged", "PolicyTimedOut"))
#: The tracks of a job, with the names of the slices there; a track has one slice at a time.
SLICES = {
    What.QUEUED: ("state", "queued"),
    What.STARTS: ("state", "starts"),
    What.WAITS: ("state", "waits for its turn"),
    What.TURN: ("state", "computes"),
    What.PERSISTENT: ("persistent memory", "asks for persistent memory"),
    What.EPHEMERAL: ("ephemeral memory", "asks for ephemeral memory"),
    What.MOVE: ("moves", "memory moves to the host store"),
}
TRACKS = tuple(dict.fromkeys(track for track, _ in SLICES.values()))


class Follower:
    """Follows the events of a daemon, starting at any event.  ``says`` describes an event in words."""

    def __init__(self, says: Callable[[EventInfo], str]) -> None:
        self._says = says
        self._clock = EventClock()
        self._now_us = 0
        self._facts = RecordedFacts(lambda event: self._now_us)
        self._flow_numbers = itertools.count(1)
        self._flows: dict[int, int] = {}  # from the wish of a job for a turn to that turn
        self._open: dict[Track, Fact] = {}
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
        self._now_us = self._clock.us(event)
        if event.kind == "RestartBegan":
            self._sizes, self._sums = {}, Counter()
        elif event.kind == "Submitted" and event.data and event.data["spec"].get("name"):  # type: ignore[attr-defined]
            self._names[event.job or 0] = event.data["spec"]["name"]  # type: ignore[index]
        for told in self._facts.read(event):
            if isinstance(told, MemoryLevel):
                self._level(told)
            elif told.end_us is None:
                self._begun(told, event.data)
            else:
                self._ended(told, event.data)
        self._counters(event)
        self._moment(event)

    # Facts

    def _begun(self, fact: Fact, data: dict[str, Any]) -> None:
        if fact.what is What.WAITS:
            self._flows[fact.job] = next(self._flow_numbers)
        for track, name in self._slices(fact):
            self._end(track, fact)
            self._open[track] = fact
            job = fact.job if track.job is None else None
            flow = self._flows.get(fact.job, 0) if fact.what in (What.WAITS, What.TURN) else 0
            arguments = _about(fact, data) if job is None else {}
            self._marks.append(Begin(self._now_us * 1000, track, name, arguments, (flow,) if flow else (), job))
        if fact.what is What.TURN:
            self._flows.pop(fact.job, None)

    def _ended(self, fact: Fact, data: dict[str, Any]) -> None:
        for track, _ in reversed(self._slices(fact)):
            if self._open.get(track, fact).what is fact.what:
                self._end(track, fact, **_reason(data))
        if fact.usage is not None:
            self._alive(fact.job, fact.usage.persistent_live + fact.usage.ephemeral_live)

    def _end(self, track: Track, fact: Fact, **more: Argument) -> None:
        if self._open.pop(track, None) is not None:
            end_us = self._now_us if fact.end_us is None else fact.end_us
            usage = fact.usage and {name: getattr(fact.usage, name) for name in ("iterations", "device_us", "residue")}
            arguments: dict[str, Argument] = {"end": fact.how} if fact.end_us is not None else {}
            self._marks.append(End(end_us * 1000, track, arguments | (usage or {}) | more))

    def _slices(self, fact: Fact) -> list[tuple[Track, str]]:
        """Return the tracks on which a fact is shown, with the names of its slices."""
        if fact.what not in SLICES:
            return []
        track, name = SLICES[fact.what]
        group = self._group(fact.job)
        found = [(_of_job(group, fact.job, track), name)]
        if fact.what is What.TURN and fact.lane is not None:
            found.append((_of_lane(fact.device, fact.lane), group))
        return found

    def _group(self, job: int) -> str:
        return f"job {job} {self._names.get(job, '')}".rstrip()

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

    def _counters(self, event: EventInfo) -> None:
        data: Any = event.data
        if event.kind == "ForeignMemory":
            self._value(_counter(data["device"], "memory of others", BYTES), data["size"])
        elif event.kind == "DeviceLoad" and data.get("load") is not None:
            self._value(_counter(data["device"], "load", PERCENT), data["load"]["active_ppm"] / 10_000)
        elif event.kind == "Sampled" and data and "persistent_live" in data["usage"]:
            self._alive(data["job"], data["usage"]["persistent_live"] + data["usage"]["ephemeral_live"])

    def _alive(self, job: int, size: int) -> None:
        self._value(_of_job(self._group(job), job, "memory alive", BYTES), size)

    def _value(self, track: Track, value: float) -> None:
        self._marks.append(Value(self._now_us * 1000, track, value))

    def _moment(self, event: EventInfo) -> None:
        track = None
        if event.kind in MOMENTS_OF_JOBS and event.job is not None and event.data:
            track = _of_job(self._group(event.job), event.job, "state")
        elif event.kind in MOMENTS_OF_DEVICES:
            device = str(event.data.get("device", ""))
            track = Track(_device(device), "changes", 0, device=device)
        elif event.kind in MOMENTS_OF_DAEMON:
            track = Track(TrackGroup("daemon", DAEMON), "changes")
        if track is not None:
            words = str(event.data["outcome"]) if event.kind == "EndJob" else self._says(event)
            self._marks.append(Point(self._now_us * 1000, track, words, _reason(event.data)))


@functools.lru_cache(4096)
def _of_job(group: str, job: int, name: str, unit: str = "") -> Track:
    rank = TRACKS.index(name) if name in TRACKS else len(TRACKS)
    return Track(TrackGroup(group, JOB + job), name, rank, unit, job=job)


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
    if fact.what is What.QUEUED:
        return {"attempt": data["attempt"]} if "attempt" in data else {"owner": fact.owner or 0}
    if fact.what is What.STARTS and fact.lane is not None:
        placed = {"placed_by": data["decision"]["policy"]} if data.get("decision") else {}
        return {"device": fact.device, "lane": fact.lane, **placed}
    if fact.what is What.WAITS:
        return {"urgent": True} if data.get("urgent") else {}
    return {"bytes": fact.size} if fact.size else {}


def _reason(data: dict[str, Any]) -> dict[str, Argument]:
    """Return the reason that an event gives, if any."""
    reason = data.get("reason")
    if isinstance(reason, dict):
        return {"reason": str(reason.get("text") or reason.get("code"))}
    return {name: str(data[name]) for name in ("text", "why", "by") if data.get(name)}
