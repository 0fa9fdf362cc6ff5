"""One lane whose turns are recorded: the turn that goes on, and turns that are over and not written yet."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from carpool.core.model import DeviceId, LaneId, Micros
from carpool.daemon.journal.turn_blocks import CODES, GOES_ON, TurnSpan
from carpool.facts.fact import Fact

#: Turns of a block, each of 25 bytes while it is in memory.
BLOCK_TURNS = 1000
NOBODY = -1  # no user's uid: the owner of a lane is not known
_OPEN = struct.Struct("<QQQB")


class TurnBlock(NamedTuple):
    """Turns of one lane, in order, by the wall clock.  ``owner``: uid of the user whose lane it is, or `NOBODY`."""

    device: DeviceId
    lane: LaneId
    owner: int
    spans: list[TurnSpan]


class RecordedLane:
    """The recorder of a lane.  Times are the core's; ``ahead_us`` is how far the wall clock is ahead of it."""

    def __init__(self, device: DeviceId, number: LaneId) -> None:
        self._device = device
        self._number = number
        self._owner = NOBODY
        self._turns = bytearray()
        self._present: Fact | None = None

    @property
    def full(self) -> bool:
        return len(self._turns) >= BLOCK_TURNS * _OPEN.size

    @property
    def idle(self) -> bool:
        """Whether no job has the turn, and no turn is to be written."""
        return self._present is None and not self._turns

    def take(self, turn: Fact) -> None:
        """Take a turn that begins or ends."""
        self._present = turn if turn.end_us is None else None
        if self._owner == NOBODY and turn.owner is not None:
            self._owner = turn.owner
        if turn.end_us is not None:
            self._turns += _OPEN.pack(turn.start_us, turn.lasted_us, turn.job, CODES[turn.how])

    def taken(self, ahead_us: Micros) -> TurnBlock | None:
        """Return the turns that are over, and drop them from memory; None: there are none."""
        spans = list(self._over(ahead_us))
        self._turns = bytearray()
        return self._block(spans) if spans else None

    def present(self, now_us: Micros, ahead_us: Micros) -> TurnBlock:
        """Return a copy of the turns, with the turn that goes on."""
        return self._block([*self._over(ahead_us), *self._going_on(now_us, ahead_us)])

    def _block(self, spans: list[TurnSpan]) -> TurnBlock:
        return TurnBlock(self._device, self._number, self._owner, spans)

    def _over(self, ahead_us: Micros) -> Iterator[TurnSpan]:
        for begin, length, job, cause in _OPEN.iter_unpack(bytes(self._turns)):
            yield TurnSpan(begin + ahead_us, begin + ahead_us + length, job, 1, cause, length)

    def _going_on(self, now_us: Micros, ahead_us: Micros) -> Iterator[TurnSpan]:
        if self._present is not None and self._present.start_us is not None:
            begin, lasted = self._present.start_us + ahead_us, max(0, now_us - self._present.start_us)
            yield TurnSpan(begin, begin + lasted, self._present.job, 1, GOES_ON, lasted)
