"""Following the turns in the seats.

Packets of different jobs may arrive in any order, so they only say that it is time to look: the seats say whose turn
has ended and who has it now.

A job hands its turn over in several writes (``native/turn/turn.c``): its own `turn` goes first, then it reads who is
next, then it counts, then the next one's `turn`, then it wakes it.  It may be preempted, or stopped, between any two.
"""

from __future__ import annotations

from collections.abc import Callable

from carpool.core.events import Event, TurnPassed, TurnReleased
from carpool.core.model import Cause, LaneId
from carpool.daemon.jobs.table import Job, JobTable
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.seats.allocator import Seating
from carpool.daemon.seats.record import cause_of, usage_of
from carpool.daemon.system.clock import monotonic_us


class Turns:
    """Whose turn it is in each lane.  ``watchlist`` hears of jobs that may be stopped in the middle of a hand-over."""

    def __init__(self, jobs: JobTable, seating: Seating, watchlist: Watchlist, post: Callable[[Event], None]) -> None:
        self._jobs = jobs
        self._seating = seating
        self._watchlist = watchlist
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

    def between(self, lane: LaneId | None) -> list[Job]:
        """Who may be in the middle of handing the lane's turn over.  Call `sync` first.

        While the holder has no turn and has not counted: itself, or the one that has named it.  Nobody can tell to
        whom the turn goes until that is over.
        """
        holder = self._holder(lane)
        if holder is None or holder.seated is None or holder.turn_due:
            return []
        seat = holder.seated.seat
        if seat.get("turn") or seat.get("passed_seq") != holder.passed_seq:
            return []
        giver = self._giver_of(lane)
        return [holder] if giver is None else [holder, giver]

    def passing(self, job: Job) -> bool:
        """Whether ``job`` may be in the middle of handing its turn over: others wait until it has gone on."""
        self.sync(job.lane)
        return job in self.between(job.lane)

    def wake_heir(self, job: Job) -> None:
        """``job`` has handed its turn over, and may have no opportunity to wake the next one."""
        heir = self._holder(job.lane)
        if heir is not None and heir is not job and heir.seated is not None:
            heir.seated.board.wake(heir.seated.seat, "turn")
            heir.seated.board.ring(heir.seated.seat)

    def take_back(self, job: Job) -> None:
        """``job`` is gone: if it died while it handed its turn over, the one that it had named gets it from us.

        What it had said before must have been told (`sync`), unless the core knows that the job is over.
        """
        heir = self._holder(job.lane)
        given = self._giver_of(job.lane) is job
        if job.lane is not None:
            if heir is job:
                del self._seating.holder[job.lane]  # another process of the job has no turn
            if given:
                del self._seating.giver[job.lane]
        if heir is None or heir is job or heir.seated is None:
            return
        seat = heir.seated.seat
        # In this order: a job that lets go clears `turn` first and wants another one only after it has counted.
        if given and seat.get("turn") == 0 and seat.get("want") and seat.get("passed_seq") == heir.passed_seq:
            seat.set("turn_start_us", monotonic_us())
            seat.set("turn", 1)
        heir.seated.board.wake(seat, "turn")  # or it may have died before it woke it
        heir.seated.board.ring(seat)

    def _holder(self, lane: LaneId | None) -> Job | None:
        number = self._seating.holder.get(lane) if lane is not None else None
        return self._jobs.live.get(number) if number is not None else None

    def _giver_of(self, lane: LaneId | None) -> Job | None:
        number = self._seating.giver.get(lane) if lane is not None else None
        giver = self._jobs.live.get(number) if number is not None else None
        return giver if giver is not None and giver.seated is not None else None

    def _ended(self, job: Job, to: Job | None, cause: Cause) -> None:
        assert job.seated is not None and job.lane is not None
        job.usage = usage_of(job, monotonic_us())
        if to is None:
            self._seating.free_turn(job.lane)
            self._post(TurnReleased(job.id, cause, job.usage))
            return
        to.switches += 1
        self._seating.give_turn(job.lane, to.id, giver=job.id)
        if to.seated is not None and to.seated.seat.get("want"):  # it may still sleep
            to.seated.board.wake(to.seated.seat, "turn")
        if self.between(job.lane):  # most often it is just about to write the next one's `turn`
            self._watchlist.watch(job)
        self._post(TurnPassed(job.id, to.id, cause, job.usage))
