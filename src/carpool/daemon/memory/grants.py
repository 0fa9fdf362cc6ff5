"""Grants of the core take effect: limits, answers to requests, turns.

The core decides on accounts, and the memory may follow a little later: no bank is free, a job has not released memory
that was cut, content is on its way back, or another program has taken free memory.  Until then a grant waits.  It is
tried again when something has changed, and now and then.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from carpool.core.model import JobId, Reason
from carpool.daemon.jobs.table import JobRecord, Seated
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.memory.bank_holders import BankHolders
from carpool.daemon.memory.restore import RestoreSender
from carpool.daemon.seats.allocator import MemoryFreed, SeatAllocator
from carpool.daemon.seats.record import answer_growth, grant_turn, is_answered, lower_limits, request_yield, set_limits
from carpool.daemon.seats.turns import Successors
from carpool.daemon.system.log_limit import caused_by
from carpool.devices.base import DeviceError
from carpool.protocol.seat import Grow, Yield

log = logging.getLogger(__name__)
RETRY_S = 0.2


@dataclass(slots=True)
class _Waiting:
    job: JobRecord
    seated: Seated
    turn: bool = False
    answers: int | None = None  # the number of the request that the grant answers
    delayed: bool = False
    told: str = ""  # the obstacle that has been logged
    timer: asyncio.TimerHandle | None = None


class Condition(Protocol):
    """A further condition for turns (`carpool.daemon.memory.weights`)."""

    def obstacle(self, job: JobRecord) -> str | None:
        """Explain why the job cannot have its turn yet; None: it can."""
        ...


class GrantSender:
    """Puts grants into effect.  ``successors`` hear of jobs whose grant begins or ends to wait."""

    def __init__(
        self,
        seating: SeatAllocator,
        banking: BankHolders,
        returning: RestoreSender,
        weights: Condition,
        successors: Successors,
        watchlist: Watchlist,
        freed: MemoryFreed,
    ) -> None:
        self._seating = seating
        self._banking = banking
        self._returning = returning
        self._weights = weights
        self._successors = successors
        self._watchlist = watchlist
        freed.listen(self.everywhere)
        self._waiting: dict[JobId, _Waiting] = {}  # in the order of arrival
        self._soon: asyncio.Handle | None = None

    def memory(self, job: JobRecord, *, answers: bool) -> None:
        """Put a changed grant into effect, and answer a request if the grant does.  Decreases take effect at once."""
        lower_limits(job.attached.seat, job.granted)
        if job.attached.extents:
            self._returning.lowered(job)
        waiting = self._entry(job)
        if answers:
            waiting.answers = job.grow_seq
        self._look(job, waiting)

    def turn(self, job: JobRecord) -> None:
        """Give the job the turn of its lane."""
        waiting = self._entry(job)
        waiting.turn, job.turn_due, job.yield_due = True, True, None
        self._look(job, waiting)

    def waits(self, job: JobRecord) -> bool:
        """Return whether the job has been granted something that is not in effect yet."""
        return job.id in self._waiting

    def withdraw(self, job: JobRecord) -> bool:
        """Withdraw a request; return True if it was granted and is refused now, because the memory is not there yet.

        Earlier grants of the job still take effect.
        """
        waiting = self._waiting.get(job.id)
        if waiting is None or waiting.answers != job.grow_seq or waiting.seated is not job.seated:
            return False
        waiting.answers = None
        answer_growth(waiting.seated.board, waiting.seated.seat, Grow.DENIED, job.grow_seq)
        return True

    def again(self, job: JobRecord) -> None:
        """Try the job's grant again, after something has changed for the job."""
        waiting = self._waiting.get(job.id)
        if waiting is not None:
            self._look(job, waiting)

    def everywhere(self) -> None:
        """Try all waiting grants again, as device memory may have become free."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._look_everywhere)

    def _look_everywhere(self) -> None:
        self._soon = None
        for number, waiting in tuple(self._waiting.items()):
            if waiting.seated.extents and self._waiting.get(number) is waiting:
                self._look(waiting.job, waiting)

    def _entry(self, job: JobRecord) -> _Waiting:
        waiting = self._waiting.get(job.id)
        if waiting is None or waiting.seated is not job.attached:
            waiting = self._waiting[job.id] = _Waiting(job, job.attached)
        return waiting

    def _look(self, job: JobRecord, waiting: _Waiting) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
            waiting.timer = None
        if job.seated is not waiting.seated:
            self._over(job)
            return
        if waiting.turn and self._seating.holder.get(job.lane or 0) != job.id:
            waiting.turn, job.turn_due = False, False
        obstacle = self._obstacle(job, waiting)
        if obstacle is None:
            self._write(job, waiting)
        else:
            self._wait(job, waiting, obstacle)

    def _wait(self, job: JobRecord, waiting: _Waiting, obstacle: str) -> None:
        job.grant_waits = Reason("device_memory", f"granted memory is not available yet: {obstacle}")
        waiting.timer = asyncio.get_running_loop().call_later(RETRY_S, self._still, job, waiting, obstacle)
        if not waiting.delayed:
            waiting.delayed = True
            self._successors.look_again(job)

    def _still(self, job: JobRecord, waiting: _Waiting, obstacle: str) -> None:
        """Try again after some time without a change, and log the obstacle once."""
        if self._waiting.get(job.id) is not waiting:
            return
        if obstacle != waiting.told:
            waiting.told = obstacle
            log.warning("job %d waits for granted memory: %s", job.id, obstacle, extra=caused_by(job.owner))
        self._look(job, waiting)

    def _obstacle(self, job: JobRecord, waiting: _Waiting) -> str | None:
        """Explain why the grant cannot take effect yet; None: it can."""
        if waiting.turn and (obstacle := self._weights.obstacle(job)) is not None:
            return obstacle
        with_bank = waiting.turn or job.granted.persistent > 0  # not even a job without memory may touch another's bank
        if waiting.seated.extents:
            return self._returning.obstacle(job, with_bank=with_bank, again=self.again)
        try:
            if with_bank:
                self._banking.give(job)
        except (DeviceError, OSError) as error:
            return str(error)
        return None

    def _write(self, job: JobRecord, waiting: _Waiting) -> None:
        seated, job.grant_waits = waiting.seated, None
        self._seating.ledger.limit(job.id, job.granted)
        set_limits(seated.seat, job.granted)
        self._returning.settle(job)
        if waiting.answers is not None:
            answered, waiting.answers = waiting.answers, None
            if not is_answered(seated.seat, answered):
                answer_growth(seated.board, seated.seat, Grow.GRANTED, answered)
        if waiting.turn and job.offloading:
            return  # the answer to the offload comes first
        if waiting.turn:
            self._turn(job, seated)
        self._over(job)
        if waiting.delayed:
            self._successors.look_again(job)

    def _turn(self, job: JobRecord, seated: Seated) -> None:
        """Grant the turn; one asked back before it came lasts until a boundary, so that the job computes at all."""
        job.turn_due = False
        grant_turn(seated.board, seated.seat)
        if job.yield_due is not None:
            request_yield(seated.board, seated.seat, Yield.BOUNDARY)
            self._watchlist.revoke(job, Yield.BOUNDARY, forced=job.yield_due is Yield.NOW)

    def _over(self, job: JobRecord) -> None:
        del self._waiting[job.id]
        job.grant_waits = None
