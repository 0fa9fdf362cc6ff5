"""Turns and moves of jobs, from the events of a live run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from carpool.facts.fact import Fact, What
from carpool.facts.recorded import facts_of
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
    found, in_us = Moves(), dict[int, int]()  # of earlier turns
    for fact in facts_of(events):
        if not isinstance(fact, Fact) or fact.start_us is None or fact.end_us is None:
            continue
        if fact.what is What.MOVE:
            found.out.append(Span(fact.job, fact.start_us, fact.end_us))
        elif fact.what is What.TURN:
            found.turns.append(Span(fact.job, fact.start_us, fact.end_us))
            total_us = fact.usage.in_us if fact.usage else 0
            taken_us = total_us - in_us.get(fact.job, 0)
            if taken_us > 0:
                in_us[fact.job] = total_us
                found.back.append(Span(fact.job, fact.start_us, fact.start_us + taken_us))
    return found
