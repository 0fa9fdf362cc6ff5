"""Requests of services to the jobs that compute: the demands in their seats, and pauses of the holders of turns.

Holders make way for a service without losing their turn, lane or memory (``src/native/turn/pause.c``).  The seat
records when a pause began; the time of a pause does not count as computed.  A pause costs the same at any instruction,
so a holder is never allowed to go on to its boundary first.
"""

from __future__ import annotations

from collections.abc import Callable

from carpool.core.events import Event, TurnPaused
from carpool.core.model import Demand
from carpool.daemon.jobs.table import JobRecord, Seated
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.seats.record import LARGEST, request_yield, usage_in
from carpool.daemon.system.clock import monotonic_us
from carpool.protocol.seat import Placed, SeatWords, Yield


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
    seated.notify()


class TurnPauses:
    """Asks for pauses, and handles the answers.  A pause costs the same whether it is forced or not."""

    def __init__(self, watchlist: Watchlist, post: Callable[[Event], None]) -> None:
        self._watchlist = watchlist
        self._post = post

    def ask(self, job: JobRecord) -> None:
        """Ask a job to pause, unless it has been asked already and nothing else was asked of it since.

        A job has paused when it answers so, whatever its seat says.
        """
        seat, words = job.attached.seat, job.attached.seat.snapshot()
        if not words.turn or words.yield_ != Yield.PAUSE or words.paused == words.pause_seq:
            seat.set("pause_seq", words.pause_seq % 0xFFFFFFFF + 1)
            request_yield(job.attached.board, seat, Yield.PAUSE)
        self._watchlist.revoke(job, Yield.PAUSE)

    def answered(self, job: JobRecord, number: int) -> None:
        """Handle the job's answer that it has paused, for the request of that number."""
        words, now = job.attached.seat.snapshot(), monotonic_us()
        if words.yield_ != Yield.PAUSE or words.pause_seq != number or not words.turn:
            return
        if not words.paused_us:
            job.attached.seat.set("paused_us", now)
            words = words._replace(paused_us=now)
        job.usage = usage_in(job, words, now)
        self._watchlist.settle(job)
        self._post(TurnPaused(job.id, job.usage))

    def end(self, job: JobRecord, seated: Seated, then: Yield = Yield.NO) -> None:
        """End the pause: the job goes on, or (``then``) gives its turn back."""
        seat = seated.seat
        if since := seat.get("paused_us"):
            seat.set("turn_start_us", seat.get("turn_start_us") + max(0, monotonic_us() - since))
            seat.set("paused_us", 0)
        seat.set("yield", then)
        seated.board.wake(seat, "yield")
        seated.board.notify(seat)


def is_paused(words: SeatWords) -> bool:
    """Return whether the job has made way for a service and still has its turn."""
    return bool(words.turn and words.paused) and words.yield_ == Yield.PAUSE
