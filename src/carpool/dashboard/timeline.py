"""A stretch of time for the page: turns from the daemon's history, moves and memory requests from its events.

A row has at most one block of a job for each pixel: the amount of data depends on the page's width, not on the events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from carpool.dashboard.upstream import Upstream
from carpool.facts.fact import Fact, What
from carpool.facts.recorded import EventClock, facts_of
from carpool.protocol.api import EventInfo

MOST_PIXELS = 4000
PAGE = 10_000  # most events of one request
PAGES = 3
#: The row on which a fact is shown, and its name.
SHOWN = {
    What.MOVE: ("moves", "memory moves to the host store"),
    What.PERSISTENT: ("requests", "asks for persistent memory"),
    What.EPHEMERAL: ("requests", "asks for ephemeral memory"),
    What.PAUSE: ("pauses", "paused for a service"),
    What.ANSWERS: ("requests", "answers requests"),
}


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

    def shows(self, begin_us: int, end_us: int) -> bool:
        """Whether any part of a block lies in this stretch."""
        return begin_us < self.until_us and end_us > self.since_us


class TimelineBlock(NamedTuple):
    """A block of a job's time; the page gets it as a list."""

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
    rows: dict[str, list[TimelineBlock]] = {row: [] for row, _ in SHOWN.values()}
    for fact in _lasting(events):
        end_us = stretch.until_us if fact.end_us is None else fact.end_us
        if fact.start_us is not None and stretch.shows(fact.start_us, end_us):
            row, name = SHOWN[fact.what]
            device = fact.device or devices.get(fact.job, "")
            text = fact.text or (fact.how if row == "requests" else "")
            rows[row].append(TimelineBlock(device, fact.job, fact.start_us, end_us, name, text))
    return {row: list(thinned(blocks, stretch)) for row, blocks in rows.items()}


def _lasting(events: Iterable[EventInfo]) -> Iterator[Fact]:
    """Yield the facts that are shown: all that have ended, then all that go on."""
    open_: dict[tuple[str, int], Fact] = {}
    for fact in facts_of(events, EventClock().us):
        if isinstance(fact, Fact) and fact.what in SHOWN:
            open_[fact.what, fact.job] = fact
            if fact.end_us is not None:
                yield open_.pop((fact.what, fact.job))
    yield from open_.values()


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
