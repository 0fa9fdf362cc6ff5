"""Pauses: holders make way for a service without losing their turn, lane or memory (``native/turn/pause.c``).

The seat records when a pause began; the time of a pause does not count as computed.  A pause costs the same at any
instruction, so a holder is never allowed to go on to its boundary first.
"""

from __future__ import annotations

from collections.abc import Callable

from carpool.core.events import Event, TurnPaused
from carpool.daemon.jobs.table import JobRecord, Seated
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.seats.record import request_yield, usage_in
from carpool.daemon.system.clock import monotonic_us
from carpool.protocol.seat import SeatWords, Yield


class TurnPauses:
    """Asks for pauses, and handles the answers.  A pause costs the same whether it is forced or not."""

    def __init__(self, watchlist: Watchlist, post: Callable[[Event], None]) -> None:
        self._watchlist = watchlist
        self._post = post

    def ask(self, job: JobRecord) -> None:
        """Ask a job to pause, unless it has been asked already and nothing else was asked of it since.

        A job has paused when it answers so, whatever its seat says.
        """
        assert job.seated is not None
        seat, words = job.seated.seat, job.seated.seat.snapshot()
        if not words.turn or words.yield_ != Yield.PAUSE or words.paused == words.pause_seq:
            seat.set("pause_seq", words.pause_seq % 0xFFFFFFFF + 1)
            request_yield(job.seated.board, seat, Yield.PAUSE)
        self._watchlist.revoke(job, Yield.PAUSE)

    def answered(self, job: JobRecord, number: int) -> None:
        """Handle the job's answer that it has paused, for the request of that number."""
        assert job.seated is not None
        words, now = job.seated.seat.snapshot(), monotonic_us()
        if words.yield_ != Yield.PAUSE or words.pause_seq != number or not words.turn:
            return
        if not words.paused_us:
            job.seated.seat.set("paused_us", now)
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
