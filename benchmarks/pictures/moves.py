"""Turns and moves of jobs, from the events of a live run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from carpool.protocol.api import EventInfo


@dataclass(frozen=True, slots=True)
class Span:
    """Of the core's clock, in microseconds."""

    job: int
    begin_us: int
    end_us: int


@dataclass(slots=True)
class Moves:
    turns: list[Span] = field(default_factory=list)
    out: list[Span] = field(default_factory=list)  # to the host store
    back: list[Span] = field(default_factory=list)  # at the begin of the turn in which it came; as long as it took


def read_moves(events: Iterable[EventInfo]) -> Moves:
    reader = _Reader()
    for event in events:
        reader.read(event)
    return reader.result


class _Reader:
    def __init__(self) -> None:
        self.result = Moves()
        self._turns: dict[int, int] = {}  # job -> begin of its turn
        self._leaving: dict[int, int] = {}
        self._in_us: dict[int, int] = {}  # of earlier turns

    def read(self, event: EventInfo) -> None:
        job = event.job
        if job is None:
            return
        if event.kind == "GrantTurn":
            self._turns[job] = event.now_us
        elif event.kind in ("TurnPassed", "TurnReleased"):
            self._turn_ends(job, event)
        elif event.kind == "Offload":
            self._leaving[job] = event.now_us
        elif event.kind == "Offloaded" and job in self._leaving:
            self.result.out.append(Span(job, self._leaving.pop(job), event.now_us))

    def _turn_ends(self, job: int, event: EventInfo) -> None:
        begin = self._turns.pop(job, None)
        if begin is not None:
            self.result.turns.append(Span(job, begin, event.now_us))
            usage: Any = event.data["usage"]
            taken = usage["in_us"] - self._in_us.get(job, 0)
            self._in_us[job] = usage["in_us"]
            if taken > 0:
                self.result.back.append(Span(job, begin, begin + taken))
        if event.kind == "TurnPassed":
            self._turns[int(str(event.data["to"]))] = event.now_us
