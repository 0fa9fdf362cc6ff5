"""What services say of their turns in their seats, and the answers."""

from __future__ import annotations

from carpool.core.model import Demand
from carpool.daemon.jobs.table import Job
from carpool.daemon.seats.record import LARGEST
from carpool.protocol.seat import Placed, Seat


def demand_of(job: Job) -> Demand | None:
    """What the turn of a service is for that it has, or waits for; None: it needs no weights, or is no service."""
    if job.seated is None or job.spec.service is None:
        return None
    seat = job.seated.seat
    if not seat.get("weights"):
        return None
    size, reload_us, compute_us, deadline_us = (
        min(seat.get(word), LARGEST) for word in ("weights_bytes", "reload_us", "compute_us", "deadline_us")
    )
    return Demand(weights_key(seat.get("weights")), size, reload_us, compute_us, deadline_us or None)


def computes_with(job: Job, weights: str) -> bool:
    """Whether a service has been told that these weights are there, and has not said that it is done."""
    demand = demand_of(job)
    if demand is None or demand.weights != weights or job.seated is None:
        return False
    seat = job.seated.seat
    return bool(seat.get("placed") == Placed.YES and seat.get("placed_seq") == seat.get("demand_seq"))


def is_met(seat: Seat, number: int) -> bool:
    """Whether a service has had the turn, or has it now, that it wanted with its demand of this number; 0: without one.

    It may not have noticed yet.  A turn that it still has for an earlier demand it gives back by itself.
    """
    return not seat.get("want") or bool(seat.get("turn") and number in (0, seat.get("placed_seq")))


def weights_key(number: int) -> str:
    """How the core calls weights."""
    return f"{number:016x}"


def answer_demand(job: Job, answer: Placed) -> None:
    """Its latest one."""
    assert job.seated is not None
    board, seat = job.seated.board, job.seated.seat
    seat.set("placed", answer)
    seat.set("placed_seq", seat.get("demand_seq"))
    board.wake(seat, "placed_seq")
    board.ring(seat)
