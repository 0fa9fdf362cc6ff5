"""Requests for memory of a job's processes on one GPU, put to the core as the job's, and its answers to them.

See `carpool.daemon.jobs.memory_shares`; `daemon.channels.lending` has the shares that are granted, and of
which no process has been told.

Not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

from carpool.core.events import Event, MemoryRequested, MemoryReturned, RequestWithdrawn
from carpool.core.model import Memory, MemoryClass
from carpool.daemon.channels.lending import Lending
from carpool.daemon.jobs.memory_shares import Ask, Sharer
from carpool.daemon.jobs.table import Job, JobTable
from carpool.daemon.memory.grants import Granting
from carpool.daemon.seats.allocator import Seating
from carpool.daemon.seats.record import answer_growth
from carpool.daemon.seats.sampler import tell_constraints
from carpool.protocol.seat import Grow

P = MemoryClass.PERSISTENT


class Sharing:
    def __init__(self, jobs: JobTable, seating: Seating, granting: Granting, post: Callable[[Event], None]) -> None:
        self._jobs = jobs
        self._granting = granting
        self._lending = Lending(jobs, seating)
        self._post = post

    # They ask

    def seat_asks(self, job: Job, total: int, *, optional: bool) -> None:
        """The attached process, for persistent memory; ``job.grow_seq`` is the number of its request."""
        shares, known = job.shares, job.shares.of(None)
        if known is not None:  # nobody waits for the answer to that any more
            known.total, known.optional = total, optional
            shares.asked &= shares.asks[0] is not known
        elif optional and shares.asks:
            self._answer_seat(job, Grow.DENIED)  # somebody of the job waits already
        else:
            shares.asks.append(Ask(None, total, optional=optional))
        self._go_on(job)

    def seat_withdraws(self, job: Job) -> None:
        ask = job.shares.of(None)
        if ask is None or (ask is job.shares.asks[0] and job.shares.asked):
            self._post(RequestWithdrawn(job.id, P))
        else:
            job.shares.asks.remove(ask)
            self._answer_seat(job, Grow.DENIED)

    def seat_returns(self, job: Job, total: int) -> None:
        """Where somebody of the job waits for memory it is a part of that."""
        less = job.own.persistent - total
        if not job.shares.asks:
            self._post(MemoryReturned(job.id, P, total + job.shares.lent))
        elif less > 0 and job.seated is not None:
            job.shares.owed += less
            self._granting.memory(job, answers=False)  # its limit first
            self._less(job)

    def asks(self, job: Job, who: Sharer, total: int, number: int) -> None:
        """A companion.  Without an attached process the core hears of memory only where it knows of several."""
        self.withdraws(job, who)
        job.shares.lends = job.several = True
        tell_constraints(job, self._post)  # before it has anything
        coming = job.shares.coming_to(who)
        if coming and total <= who.seat.get("p_limit") + sum(ask.more for ask in coming):
            coming[-1].number = number  # it was interrupted, and asks anew for what is on its way
            return
        job.shares.asks.append(Ask(who, total, number))
        self._go_on(job)

    def withdraws(self, job: Job, who: Sharer) -> None:
        shares, ask = job.shares, job.shares.of(who)
        if ask is None or ask in shares.coming:
            return
        if ask is shares.asks[0] and shares.asked:
            self._post(RequestWithdrawn(job.id, P))
        else:
            shares.asks.remove(ask)
            self._lending.answer(ask, Grow.DENIED)

    def returns(self, job: Job, who: Sharer, total: int) -> None:
        """It uses no more than that, and has lowered its own idea of its share; or it did so before a restart."""
        seat = who.seat
        share, total = seat.get("p_limit"), max(total, seat.get("p_live") + seat.get("e_live"))
        if total < share and job.shares.of(who) is None:
            self._take_back(job, who, share - total)
            self._less(job)

    def gone(self, job: Job, who: Sharer) -> None:
        """Its process has ended."""
        shares = job.shares
        for ask in shares.coming_to(who):
            self._lending.hand_over(job, ask)
        last = shares.of(who)
        if last is not None and last is shares.asks[0] and shares.asked:
            last.gone = True
            self._post(RequestWithdrawn(job.id, P))
        elif last is not None:
            shares.asks.remove(last)
        self._take_back(job, who, who.seat.get("p_limit"))
        self._less(job)

    # The core answers

    def granted(self, job: Job, memory: Memory, answers: MemoryClass | None) -> None:
        """The job may have so much now; perhaps that answers the first request."""
        shares, own = job.shares, job.own.persistent
        less, job.granted = job.granted.persistent - memory.persistent, memory
        head = self._answered(job) if answers is P else None
        if answers is None and less > 0:
            shares.owed -= min(shares.owed, less)
        if head is not None:
            self._divide(job, head, own)
        shares.held = self._held(job, own)
        if job.seated is not None:
            seats = answers is not None and (head is None or head.who is None)
            self._granting.memory(job, answers=seats)
        self._go_on(job)

    def denied(self, job: Job, kind: MemoryClass) -> None:
        if job.shares.anew and kind is P:
            return
        head = self._answered(job) if kind is P else None
        if head is None or head.who is None:
            self._answer_seat(job, Grow.DENIED)
        else:
            self._lending.answer(head, Grow.DENIED)
        self._go_on(job)

    # After a restart, and when the attached process is gone

    def adopt(self, job: Job, who: Sharer) -> None:
        """An earlier daemon has given it its share."""
        job.shares.lent += who.seat.get("p_limit")
        job.shares.lends |= job.shares.lent > 0

    def detached(self, job: Job) -> int:
        """What companions keep; the core forgets what was asked.  `again` afterwards."""
        shares = job.shares
        shares.asks = [ask for ask in shares.asks if ask.who is not None and not ask.gone]
        shares.owed = shares.held = 0
        shares.asked = False
        job.granted = Memory(shares.lent, 0)  # the core will say so, too
        return shares.lent

    def again(self, job: Job) -> None:
        self._go_on(job)

    # Within

    def _answered(self, job: Job) -> Ask | None:
        """The request that the core has had, and has answered."""
        if not job.shares.asked:
            return None
        job.shares.asked = False
        return job.shares.asks.pop(0)

    def _held(self, job: Job, own: int) -> int:
        """A grant for the other class may bring what a companion has asked for, before the answer to that."""
        shares = job.shares
        head = shares.asks[0] if shares.asked else None
        if head is None or head.who is None:
            return 0
        more = job.granted.persistent - shares.lent - shares.owed - own
        return max(0, more if own >= head.own else min(head.more, more))

    def _divide(self, job: Job, ask: Ask, own: int) -> None:
        """An answer.  What was granted to spare is for who has asked: others would ask for that beside their own.

        ``own``: the attached process's until now; less than when it was asked if it comes back from its store.
        """
        shares, there = job.shares, job.granted.persistent - job.shares.lent
        wanted = max(own, ask.total) if ask.who is None else max(own, ask.own) + ask.more
        shares.owed = min(shares.owed, max(0, there - wanted))
        if ask.who is None:
            return
        if own >= ask.own:
            ask.more = max(ask.more, there - own - shares.owed)
        self._lend(job, ask)

    def _go_on(self, job: Job) -> None:
        shares = job.shares
        if shares.asked or self._jobs.live.get(job.id) is not job:
            return
        if shares.asks:
            head, shares.asked = shares.asks[0], True
            total = shares.lent + (head.total if head.who is None else self._with_own(job, head, head.who))
            self._post(MemoryRequested(job.id, P, total, optional=head.optional))
        elif shares.owed:
            self._post(MemoryReturned(job.id, P, self._own(job) + shares.lent))

    def _less(self, job: Job) -> None:
        """Something has been given back: it is a part of what the core has been asked for, or goes back to it.

        The core keeps a request that waits beside one for no more than the job has: that is withdrawn first.
        """
        shares = job.shares
        if shares.asked and shares.owed and not shares.asks[0].gone:
            shares.asked, shares.anew = False, True
            self._post(RequestWithdrawn(job.id, P))
            shares.anew = False
        self._go_on(job)

    def _with_own(self, job: Job, ask: Ask, who: Sharer) -> int:
        """The attached process's and what is new, without the shares that there are."""
        has = who.seat.get("p_limit") + sum(coming.more for coming in job.shares.coming_to(who))
        ask.own, ask.more = self._own(job), max(0, ask.total - has)
        return ask.own + ask.more

    def _own(self, job: Job) -> int:
        """Of the attached process; while it is in its store it has been granted nothing, and has to have that again."""
        used = 0 if job.seated is None else job.seated.seat.get("p_used")
        return max(job.own.persistent, used)

    def _take_back(self, job: Job, who: Sharer, size: int) -> None:
        who.seat.set("p_limit", who.seat.get("p_limit") - size)
        job.shares.lent -= size
        job.shares.owed += size

    def _lend(self, job: Job, ask: Ask) -> None:
        if ask.gone:
            job.shares.owed += ask.more
            return
        job.shares.lent += ask.more
        self._lending.lend(job, ask)

    def _answer_seat(self, job: Job, answer: Grow) -> None:
        if job.seated is not None:
            answer_growth(job.seated.board, job.seated.seat, answer, job.grow_seq)
