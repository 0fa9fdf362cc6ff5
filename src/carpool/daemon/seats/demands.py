"""Demands that services write into their seats, and the answers."""

from __future__ import annotations

from carpool.core.model import Demand
from carpool.daemon.jobs.table import JobRecord, Seated
from carpool.daemon.seats.record import LARGEST
from carpool.protocol.seat import Placed, SeatWords


def demand_in(words: SeatWords) -> Demand | None:
    """Return the demand for the turn that a service has or waits for; None: the service needs no weights."""
    if not words.weights:
        return None
    size, reload_us, compute_us, deadline_us = (
        min(word, LARGEST) for word in (words.weights_bytes, words.reload_us, words.compute_us, words.deadline_us)
    )
    return Demand(weights_key(words.weights), size, reload_us, compute_us, deadline_us or None)


def computes_with(job: JobRecord, weights: str) -> bool:
    """Return whether a service has been told that these weights are there, and has not reported that it is done."""
    if job.seated is None or job.spec.service is None:
        return False
    words = job.seated.seat.snapshot()
    demand = demand_in(words)
    if demand is None or demand.weights != weights:
        return False
    return words.placed == Placed.YES and words.placed_seq == words.demand_seq


def is_met(words: SeatWords, number: int) -> bool:
    """Return whether a service has had, or has, the turn that it wanted with demand ``number``; 0: without a demand.

    The service may not have noticed the turn yet.  A turn left from an earlier demand the service gives back by itself.
    """
    return not words.want or bool(words.turn and number in (0, words.placed_seq))


def weights_key(number: int) -> str:
    """Return the core's name for weights."""
    return f"{number:016x}"


def answer_demand(seated: Seated, answer: Placed, number: int) -> None:
    """Answer the demand ``number``, the one on whose words the answer was decided."""
    seated.seat.set("placed", answer)
    seated.seat.set("placed_seq", number)
    seated.board.wake(seated.seat, "placed_seq")
    seated.board.notify(seated.seat)
