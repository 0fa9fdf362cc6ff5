"""A stretch of time for the page: turns from the daemon's history, moves and memory requests from its events.

At most one block for each pixel of each row: how much is sent depends on the page's width, not on what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from carpool.dashboard.upstream import Upstream
from carpool.protocol.api import EventInfo
from carpool.timeline.follower import Follower
from carpool.timeline.marks import Begin, End, Track

MOST_PIXELS = 4000
PAGE = 10_000  # events of one question
PAGES = 3
ROWS = ("moves", "requests")


class Stretch(NamedTuple):
    """Wall clock, microseconds, and how many pixels show it."""

    since_us: int
    until_us: int
    width: int

    @classmethod
    def of(cls, query: Any) -> Stretch:
        """Raises ValueError, for people."""
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


async def timeline(daemon: Upstream, stretch: Stretch) -> dict[str, object]:
    """What the page draws.  Raises DaemonGone, DaemonRefused."""
    query = f"since={stretch.since_us}&until={stretch.until_us}&bins={stretch.width}"
    turns = await daemon.get(f"/v1/turns?{query}", dict[str, msgspec.Raw])
    events = await _events(daemon, stretch.since_us)
    rows: dict[str, list[TimelineBlock]] = {name: [] for name in ROWS}
    for kind, block in _blocks(events, stretch):
        rows[kind].append(block)
    return {**turns, **{kind: list(thinned(blocks, stretch)) for kind, blocks in rows.items()}}


async def _events(daemon: Upstream, since_us: int) -> list[EventInfo]:
    """Those that the daemon still has, back to the time or as far as a few pages reach."""
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
    """Slices of jobs' tracks that lie in the stretch, also those that go on."""
    follower = Follower(lambda event: event.kind)
    open_: dict[Track, Begin] = {}
    for mark in follower.follow(events):
        if isinstance(mark, Begin) and mark.track.job is not None and _row(mark) is not None:
            open_[mark.track] = mark
        elif isinstance(mark, End) and (begin := open_.pop(mark.track, None)) is not None:
            yield from _within(begin, mark.time_ns // 1000, str(mark.arguments.get("end", "")), stretch)
    for begin in open_.values():
        yield from _within(begin, stretch.until_us, "", stretch)


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
    """The first of each job's blocks in a pixel, as long as all that begin in that pixel."""
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
