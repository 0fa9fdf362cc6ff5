"""Following the turns in the seats.

Packets of different jobs may arrive in any order, so they only say that it is time to look: the seats say whose turn
has ended and who has it now.
"""

from __future__ import annotations

from collections.abc import Callable

from carpool.core.events import Event, TurnPassed, TurnReleased
from carpool.core.model import Cause, LaneId
from carpool.daemon.clock import monotonic_us
from carpool.daemon.jobs import Job, JobTable
from carpool.daemon.seating import Seating
from carpool.daemon.seats import cause_of, usage_of


class Turns:
    def __init__(self, jobs: JobTable, seating: Seating, post: Callable[[Event], None]) -> None:
        self._jobs = jobs
        self._seating = seating
        self._post = post

    def sync(self, lane: LaneId | None) -> None:
        """Tell the core of every turn of the lane that has ended."""
        while (holder := self._holder(lane)) is not None and holder.seated is not None:
            number = holder.seated.seat.get("passed_seq")
            if number == holder.passed_seq:
                return
            holder.passed_seq = number
            slot = holder.seated.seat.get("passed_to")
            # A successor that died in the meantime cannot compute: the turn is free.
            to = self._seating.at(holder.seated.board, slot - 1) if slot else None
            self._ended(holder, to, cause_of(holder.seated.seat.get("cause")))

    def settle_dead(self, job: Job) -> None:
        """``job`` is gone: if it died while it handed its turn over, the one that it had named gets it from us."""
        self.sync(job.lane)
        heir = self._holder(job.lane)
        if heir is None or heir is job or heir.seated is None:
            return
        seat = heir.seated.seat
        # In this order: a job that lets go clears `turn` first and wants another one only after it has counted.
        if seat.get("turn") == 0 and seat.get("want") and seat.get("passed_seq") == heir.passed_seq:
            seat.set("turn_start_us", monotonic_us())
            seat.set("turn", 1)
        heir.seated.board.wake(seat, "turn")  # or it may have died before it woke it
        heir.seated.board.ring(seat)

    def _holder(self, lane: LaneId | None) -> Job | None:
        number = self._seating.holder.get(lane) if lane is not None else None
        return self._jobs.live.get(number) if number is not None else None

    def _ended(self, job: Job, to: Job | None, cause: Cause) -> None:
        assert job.seated is not None and job.lane is not None
        job.usage = usage_of(job.seated.seat, monotonic_us())
        if to is None:
            del self._seating.holder[job.lane]
            self._post(TurnReleased(job.id, cause, job.usage))
            return
        to.switches += 1
        self._seating.holder[job.lane] = to.id
        self._post(TurnPassed(job.id, to.id, cause, job.usage))
