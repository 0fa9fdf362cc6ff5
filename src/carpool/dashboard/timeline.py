"""A stretch of time for the page: turns from the daemon's history, moves and memory requests from its events.

A row has at most one block of a job for each pixel: the amount of data depends on the page's width, not on the events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from carpool.dashboard.upstream import Upstream
from carpool.protocol.api import EventInfo
from carpool.timeline.follower import Follower
from carpool.timeline.marks import Begin, End, Track

MOST_PIXELS = 4000
PAGE = 10_000  # most events of one request
PAGES = 3
ROWS = ("moves", "requests", "pauses")
PAUSE_ENDS = frozenset(("GrantTurn", "TurnReleased", "Detached", "EndJob", "RetryJob"))


class Stretch(NamedTuple):
    """Wall clock, microseconds, and how many pixels show it."""

    since_us: int
    until_us: int
    width: int

    @classmethod
    def of(cls, query: Any) -> Stretch:
        """Parse the parameters of a request.  Raises ValueError, for people."""
        try:
            found = cls(*(int(query[name]) for name in ("since_us", "until_us", "width")))
        except (KeyError, ValueError):
            raise ValueError("since_us, until_us and width must be whole numbers") from None
        if not 0 <= found.since_us < found.until_us < 2**62 or not 1 <= found.width <= MOST_PIXELS:
            raise ValueError(f"since_us must be before until_us, and width from 1 to {MOST_PIXELS}")
        return found


class TimelineBlock(NamedTuple):
    """Something that a job did; the page gets it as a list."""

    device: str
    job: int
    begin_us: int
    end_us: int
    what: str
    text: str


class _JobPlace(msgspec.Struct):
    id: int
    device: str | None


class _JobPlaces(msgspec.Struct):
    jobs: list[_JobPlace]


async def timeline(daemon: Upstream, stretch: Stretch) -> dict[str, object]:
    """Return the turns and the rows that the page draws.  Raises DaemonGone, DaemonRefused."""
    query = f"since={stretch.since_us}&until={stretch.until_us}&bins={stretch.width}"
    turns = await daemon.get(f"/v1/turns?{query}", dict[str, msgspec.Raw])
    events = await _events(daemon, stretch.since_us)
    places = await daemon.get("/v1/jobs?phase=running,stopping", _JobPlaces)
    devices = {job.id: job.device for job in places.jobs if job.device is not None}
    return {**turns, **await asyncio.to_thread(rows_of, events, stretch, devices)}


def rows_of(events: list[EventInfo], stretch: Stretch, devices: dict[int, str]) -> dict[str, list[TimelineBlock]]:
    """Return what jobs did beside their turns, by row.  ``devices``: of jobs whose device no event names."""
    started = (event for event in events if event.kind in ("StartJob", "Adopted") and event.job and event.data)
    devices = {**devices, **{event.job or 0: str(event.data["device"]) for event in started}}
    rows: dict[str, list[TimelineBlock]] = {name: [] for name in ROWS}
    for kind, block in chain(_blocks(events, stretch), _pauses(events, stretch)):
        rows[kind].append(block._replace(device=devices.get(block.job, block.device)))
    return {kind: list(thinned(blocks, stretch)) for kind, blocks in rows.items()}


async def _events(daemon: Upstream, since_us: int) -> list[EventInfo]:
    """Return the events that the daemon still has, back to ``since_us`` or as far as `PAGES` pages reach."""
    found: list[EventInfo] = []
    before = ""
    for _ in range(PAGES):
        async with daemon.answer("GET", f"/v1/events?limit={PAGE}{before}") as answer:
            page = [msgspec.json.decode(line, type=EventInfo) for line in (await answer.read()).splitlines()]
        found = page + found
        if len(page) < PAGE or page[0].time_us < since_us:
            break
        before = f"&before={page[0].seq}"
    return found


def _blocks(events: Iterable[EventInfo], stretch: Stretch) -> Iterator[tuple[str, TimelineBlock]]:
    """Yield slices of jobs' tracks that lie in the stretch, with those that have not ended."""
    follower = Follower(lambda event: event.kind)
    open_: dict[Track, Begin] = {}
    for mark in follower.follow(events):
        if isinstance(mark, Begin) and mark.track.job is not None and _row(mark) is not None:
            open_[mark.track] = mark
        elif isinstance(mark, End) and (begin := open_.pop(mark.track, None)) is not None:
            yield from _within(begin, mark.time_ns // 1000, str(mark.arguments.get("end", "")), stretch)
    for begin in open_.values():
        yield from _within(begin, stretch.until_us, "", stretch)


def _pauses(events: Iterable[EventInfo], stretch: Stretch) -> Iterator[tuple[str, TimelineBlock]]:
    """Yield pauses of turns that services have interrupted, until the turns go on."""
    begun: dict[int, int] = {}
    for event in events:
        if event.job is None or not event.data:
            continue
        if event.kind == "TurnPaused":
            begun[event.job] = event.time_us
        elif event.kind in PAUSE_ENDS and (begin_us := begun.pop(event.job, None)) is not None:
            yield from _pause(event.job, begin_us, event.time_us, stretch)
    for job, begin_us in begun.items():
        yield from _pause(job, begin_us, stretch.until_us, stretch)


def _pause(job: int, begin_us: int, end_us: int, stretch: Stretch) -> Iterator[tuple[str, TimelineBlock]]:
    if begin_us < stretch.until_us and end_us > stretch.since_us:
        yield "pauses", TimelineBlock("", job, begin_us, end_us, "paused for a service", "")


def _row(begin: Begin) -> str | None:
    if begin.track.name == "moves":
        return "moves"
    return "requests" if begin.track.name in ("persistent memory", "ephemeral memory") else None


def _within(begin: Begin, end_us: int, text: str, stretch: Stretch) -> Iterator[tuple[str, TimelineBlock]]:
    begin_us, row = begin.time_ns // 1000, _row(begin)
    if row is not None and begin_us < stretch.until_us and end_us > stretch.since_us:
        device = begin.track.device or ""
        yield row, TimelineBlock(device, begin.track.job or 0, begin_us, end_us, begin.name, text)


def thinned(blocks: Iterable[TimelineBlock], stretch: Stretch) -> Iterator[TimelineBlock]:
    """Merge the blocks of a job that begin in one pixel into the first, which lasts to the latest end."""
    last: dict[int, TimelineBlock] = {}
    for block in sorted(blocks, key=lambda block: (block.job, block.begin_us)):
        kept = last.get(block.job)
        if kept is not None and _pixel(kept.begin_us, stretch) == _pixel(block.begin_us, stretch):
            last[block.job] = kept._replace(end_us=max(kept.end_us, block.end_us))
            continue
        if kept is not None:
            yield kept
        last[block.job] = block
    yield from last.values()


def _pixel(at_us: int, stretch: Stretch) -> int:
    return max(0, at_us - stretch.since_us) * stretch.width // (stretch.until_us - stretch.since_us)
