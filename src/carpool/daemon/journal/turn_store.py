"""The turns of all lanes: what has just been in memory, everything else in blocks in the journal.

A block has up to `BLOCK_TURNS` turns, or those of a minute.  It is merged when it is old: to a span for each second
after an hour, for each minute after a day; sooner where blocks have more bytes than their share of the quota, and then
first those of the lane that has most.  A daemon that is killed loses the turns that are not in a block yet.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import DeviceId, JobId, LaneId, Micros
from carpool.daemon.journal.turn_blocks import SEVERAL, TurnSpan, merged, pack, together, unpack, within
from carpool.daemon.journal.turn_recorder import TurnLane, TurnRecorder
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import wall_us

log = logging.getLogger(__name__)
BLOCK_TURNS = 1000
BLOCK_US: Micros = 60_000_000
SECOND: Micros = 1_000_000
HOUR: Micros = 3600 * SECOND
#: How coarse blocks are, and how old they get before they become coarser, or are deleted.
STEPS: dict[Micros, Micros] = {0: HOUR, SECOND: 24 * HOUR, 60 * SECOND: 90 * 24 * HOUR}
#: Beside what is packed: the row, and its place in the index.
ROW_BYTES = 100
LOOK_S = 60.0
#: Of one look: bounded work, and bounded transactions.
MOST_BLOCKS = 500

_COLUMNS = "device, lane, owner, step_us, first_us, last_us, job, turns, busy_us, data"
_INSERT = f"INSERT INTO turns ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM turns WHERE id = ?"
_IN = f"SELECT id, {_COLUMNS} FROM turns WHERE last_us > ? AND first_us < ? ORDER BY device, lane, first_us, id"
_SIZES = "SELECT id, device, lane, step_us, first_us, last_us, length(data) FROM turns ORDER BY first_us, id"
_BY_ID = f"SELECT id, {_COLUMNS} FROM turns WHERE id = ?"
_FIRST = "SELECT min(first_us) FROM turns"

LaneKey = tuple[DeviceId, LaneId, int]  # device, lane, uid of the owner of its jobs


class TurnBlock(NamedTuple):
    """A row of the table `turns`.  ``job``, ``turns`` and ``busy_us``: as if all were merged to one span."""

    id: int
    device: DeviceId
    lane: LaneId
    owner: int
    step_us: Micros
    first_us: Micros
    last_us: Micros
    job: JobId
    turns: int
    busy_us: Micros
    data: bytes

    @property
    def key(self) -> LaneKey:
        return (self.device, self.lane, self.owner)

    def spans(self) -> Iterator[TurnSpan]:
        """Its turns; a block that somebody has spoilt has none."""
        try:
            yield from unpack(self.data)
        except ValueError as error:
            log.warning("the journal has a block of turns that makes no sense; it is left out: %s", error)

    def whole(self) -> TurnSpan:
        """All of it as one span."""
        return TurnSpan(self.first_us, self.last_us, self.job, self.turns, SEVERAL, self.busy_us)


class TurnStore:
    """Of all devices.  Times are the wall clock's.  ``quota``: bytes in the journal."""

    def __init__(self, journal: Journal, path: Path, owner_of: Callable[[JobId], int | None], quota: int) -> None:
        self._journal, self._path, self._quota = journal, path, quota
        self._recorder = TurnRecorder(owner_of, self._ended, self._write)

    def heard(self, now_us: Micros, happened: Event | Command) -> None:
        """Of everything that is recorded, in order."""
        self._recorder.heard(now_us, happened)

    def close(self) -> None:
        """Everything that is known goes to the journal."""
        self._recorder.close()
        for lane in self._recorder.lanes.values():
            self._write(lane)

    def _ended(self, lane: TurnLane) -> None:
        first = lane.spans[0].begin_us
        if len(lane.spans) >= BLOCK_TURNS or lane.latest_us - first >= BLOCK_US:
            self._write(lane)

    def _write(self, lane: TurnLane) -> None:
        if lane.spans:
            row = _row((lane.device, lane.lane, lane.owner), 0, lane.taken())
            self._journal.owe(_INSERT, [row], droppable=True)

    # Reading

    def recent(self, now_us: Micros) -> dict[LaneKey, list[TurnSpan]]:
        """Turns that are in no block yet, those that go on until now among them."""
        found: dict[LaneKey, list[TurnSpan]] = {}
        for lane in self._recorder.lanes.values():
            spans = list(lane.spans)
            if lane.holder is not None:
                end_us = max(now_us, lane.since_us)
                spans.append(TurnSpan(lane.since_us, end_us, lane.holder, 1, "", end_us - lane.since_us))
            found[(lane.device, lane.lane, lane.owner)] = spans
        return found

    async def between(
        self, since_us: Micros, until_us: Micros, bins: int, wanted: Callable[[LaneKey], bool]
    ) -> tuple[Micros | None, dict[LaneKey, list[TurnSpan]]]:
        """From when on turns are kept, and those between two times, at most one for each of ``bins`` and lane."""
        recent = self.recent(wall_us())
        await self._journal.flushed()  # what leaves memory meanwhile is known twice, and counts once
        return await asyncio.to_thread(self._between, since_us, until_us, bins, wanted, recent)

    def _between(
        self,
        since_us: Micros,
        until_us: Micros,
        bins: int,
        wanted: Callable[[LaneKey], bool],
        recent: dict[LaneKey, list[TurnSpan]],
    ) -> tuple[Micros | None, dict[LaneKey, list[TurnSpan]]]:
        width_us = (until_us - since_us) / bins
        with closing(self._reader()) as connection:
            kept_from = connection.execute(_FIRST).fetchone()[0]
            blocks = (TurnBlock(*row) for row in connection.execute(_IN, (since_us, until_us)))
            found: dict[LaneKey, list[TurnSpan]] = defaultdict(list)
            for block in blocks:
                if wanted(block.key) and not _begins(recent.get(block.key), block.first_us):
                    found[block.key] += merged(_spans_for(block, since_us, width_us), since_us, width_us)
        for key in filter(wanted, recent):
            found[key] += recent[key]
        shown = {
            key: list(merged(within(spans, since_us, until_us), since_us, width_us)) for key, spans in found.items()
        }
        firsts = [spans[0].begin_us for spans in recent.values() if spans]
        return min([*firsts, *([] if kept_from is None else [kept_from])], default=None), shown

    def _reader(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)

    # Becoming coarser

    async def run(self) -> None:
        """For as long as the daemon runs."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.shorten(wall_us())

    async def shorten(self, now_us: Micros) -> int:
        """One look at what is too old or too much; how many blocks were replaced or deleted."""
        await self._journal.flushed()
        old, new = await asyncio.to_thread(self._shorter, now_us)
        if old:  # in one transaction: nothing is there twice, or missing
            self._journal.owe(_DELETE, [(number,) for number in old])
            self._journal.owe(_INSERT, new)
        return len(old)

    def _shorter(self, now_us: Micros) -> tuple[list[int], list[tuple[object, ...]]]:
        with closing(self._reader()) as connection:
            sizes = [BlockSize(*row) for row in connection.execute(_SIZES)]
            chosen = chosen_blocks(sizes, now_us, self._quota)
            blocks = [TurnBlock(*connection.execute(_BY_ID, (number,)).fetchone()) for number in chosen]
        groups: dict[tuple[LaneKey, Micros], list[TurnBlock]] = defaultdict(list)
        for block in blocks:
            groups[(block.key, block.step_us)].append(block)
        new = [row for (key, step), group in groups.items() for row in _coarser(key, step, group)]
        return chosen, new


class BlockSize(NamedTuple):
    """A block without its turns."""

    id: int
    device: DeviceId
    lane: LaneId
    step_us: Micros
    first_us: Micros
    last_us: Micros
    size: int

    @property
    def bytes(self) -> int:
        return self.size + ROW_BYTES


def chosen_blocks(sizes: list[BlockSize], now_us: Micros, quota: int) -> list[int]:
    """Blocks that are to become coarser, at most `MOST_BLOCKS`: those that are too old, then those that are too many.

    ``sizes``: the oldest first.  Blocks of one step have half of the quota, a quarter, and a quarter.
    """
    chosen: list[int] = []
    for step, kept_us in STEPS.items():
        blocks = [block for block in sizes if block.step_us == step]
        old = [block.id for block in blocks if block.last_us < now_us - kept_us]
        share = quota // (2 if step == 0 else 4)
        chosen += [*old, *_too_many([block for block in blocks if block.last_us >= now_us - kept_us], share)]
    return chosen[:MOST_BLOCKS]


def _too_many(blocks: list[BlockSize], share: int) -> Iterator[int]:
    """The oldest of the lane that has most, again and again, until the rest has no more than the share."""
    lanes: dict[tuple[DeviceId, LaneId], list[BlockSize]] = defaultdict(list)
    for block in reversed(blocks):
        lanes[(block.device, block.lane)].append(block)
    sizes = Counter({lane: sum(block.bytes for block in found) for lane, found in lanes.items()})
    total = sizes.total()
    while total > share:
        ((largest, _),) = sizes.most_common(1)
        block = lanes[largest].pop()
        sizes[largest] -= block.bytes
        total -= block.bytes
        yield block.id


def _coarser(key: LaneKey, step_us: Micros, blocks: list[TurnBlock]) -> Iterator[tuple[object, ...]]:
    """Rows that take the place of blocks of one lane; none for those that are as coarse as can be: they go."""
    steps = list(STEPS)
    following = steps[steps.index(step_us) + 1 :] if step_us in STEPS else []
    spans = [span for block in blocks for span in block.spans()] if following else []
    shorter = list(merged(spans, 0, following[0])) if spans else []
    for first in range(0, len(shorter), BLOCK_TURNS):
        yield _row(key, following[0], shorter[first : first + BLOCK_TURNS])


def _row(key: LaneKey, step_us: Micros, spans: list[TurnSpan]) -> tuple[object, ...]:
    whole = together(spans)
    return (*key, step_us, whole.begin_us, whole.end_us, whole.job, whole.turns, whole.busy_us, pack(spans))


def _begins(recent: list[TurnSpan] | None, at_us: Micros) -> bool:
    """Whether turns in memory reach back so far."""
    return recent is not None and bool(recent) and recent[0].begin_us <= at_us


def _spans_for(block: TurnBlock, since_us: Micros, width_us: float) -> Iterable[TurnSpan]:
    """The block's turns, or all of them as one span where they are on one pixel anyway."""
    first, last = (int(max(0, at - since_us) / width_us) for at in (block.first_us, block.last_us - 1))
    return [block.whole()] if first == last else block.spans()
