"""The history of turns, as the API gives it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class TurnsOfBin(NamedTuple):
    """One turn, or ``turns`` of them that begin in the same bin.  Times are the wall clock's.

    ``job``: the one with most time in it, None where the caller may not know; ``cause``: how the last one ended, empty
    while it goes on; ``busy_us``: the time in which any had the turn.
    """

    begin_us: int
    end_us: int
    job: int | None
    turns: int
    cause: str  # "boundary" | "early" | "forced" | "exit" | "paused" | "left" | "failed" | "ended" | "unknown" | ""
    busy_us: int


class LaneTurns(msgspec.Struct, frozen=True):
    """Of one lane: in order, without overlaps, at most one that begins in each bin."""

    device: str
    lane: int
    turns: list[TurnsOfBin]


class TurnHistory(msgspec.Struct, frozen=True):
    """GET /v1/turns.  Lanes without a turn in that time are left out."""

    since_us: int
    until_us: int
    kept_from_us: int | None  # the oldest time of which anything is kept
    lanes: list[LaneTurns]
