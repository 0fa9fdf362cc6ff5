"""Following the turns in the seats, naming successors there, and what everything needs that works on seats.

Packets of different jobs may arrive in any order, so a packet only means that it is time to look: the seats say whose
turn has ended and which job has it now.

A job hands its turn over in several writes (``src/native/turn/turn.c``): it clears its own `turn`, reads its successor,
counts, sets the successor's `turn`, and wakes the successor.  The job may be preempted, or stopped, between any two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from carpool.core.commands import NameSuccessor
from carpool.core.events import Event, TurnPassed, TurnReleased
from carpool.core.model import DeviceId, JobId, LaneId
from carpool.core.policies.view import DeviceView
from carpool.daemon.jobs.table import JobRecord, JobTable, Seated
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.seats.allocator import MemoryFreed, SeatAllocator
from carpool.daemon.seats.record import cause_of, usage_in
from carpool.daemon.system.clock import monotonic_us
from carpool.protocol.seat import Seat, SeatWords

#: Most ended turns of a lane that are reported at once.
MOST_ENDED = 4


class Successors:
    """The core's latest choice for each lane, in effect while the successor may compute at once."""

    def __init__(self, jobs: JobTable, seating: SeatAllocator) -> None:
        self._jobs = jobs
        self._seating = seating
        self._named: dict[LaneId, NameSuccessor] = {}

    def name(self, command: NameSuccessor) -> None:
        """Write the successor's slot into the holder's seat, as the core commands; 0 while the successor must wait."""
        self._named[command.lane] = command
        self._write(command)

    def look_again(self, job: JobRecord) -> None:
        """Write or clear the name of a job that is the next in its lane, after whether it may compute has changed."""
        named = self._named.get(job.lane or 0)
        if named is not None and named.successor == job.id and self._seating.holder.get(named.lane) == named.holder:
            self._write(named)

    def forget(self, lane: LaneId) -> None:
        """Forget a lane that has been closed."""
        self._named.pop(lane, None)

    def _write(self, command: NameSuccessor) -> None:
        holder = self._seated(command.holder)
        if holder is not None:
            holder.seat.set("successor", self._slot(command, holder))

    def _slot(self, command: NameSuccessor, holder: Seated) -> int:
        """Return the successor's slot, from 1 on; 0: none, so the holder gives its turn back to the daemon to pass on.

        Boards of holder and successor differ only after a restart.
        """
        job = None if command.successor is None else self._jobs.live.get(command.successor)
        if job is None or job.seated is None or not may_compute(job) or job.seated.board is not holder.board:
            return 0
        return job.seated.seat.slot + 1

    def _seated(self, number: JobId) -> Seated | None:
        job = self._jobs.live.get(number)
        return None if job is None else job.seated


def may_compute(job: JobRecord) -> bool:
    """Return whether a job has all that it was granted, and its memory is not being moved."""
    return job.bank is not None and not job.offloading and job.grant_waits is None


@dataclass(eq=False)
class Turns:
    """Tracks the holder of each lane's turn.  ``watchlist`` gets jobs that may be stopped amid a hand-over."""

    _jobs: JobTable
    _seating: SeatAllocator
    _watchlist: Watchlist
    _post: Callable[[Event], None]

    def sync(self, lane: LaneId | None) -> None:
        """Tell the core of every turn of the lane that has ended: a few at most, one if the jobs keep to the protocol.

        Only a holder that the daemon knows is told a successor.  Jobs that go on naming each other are looked at again
        with their next packet.
        """
        for _ in range(MOST_ENDED):
            holder = self._holder(lane)
            if holder is None or holder.seated is None:
                return
            # Read alone and first: the job writes this word last, so successor and cause have been written by then.
            number = holder.seated.seat.get("passed_seq")
            if number == holder.passed_seq:
                return
            holder.passed_seq = number
            words = holder.seated.seat.snapshot()
            # A successor that died in the meantime cannot compute: the turn is free.
            to = self._seating.at(holder.seated.board, words.passed_to - 1) if words.passed_to else None
            self._ended(holder, holder.seated, words, None if to is holder else to)

    def between(self, lane: LaneId | None) -> list[JobRecord]:
        """Return the jobs that may be in the middle of handing the lane's turn over.  Call `sync` first.

        While the holder has no turn and has not counted: the holder itself, or the job that has named it.  Until that
        is over, it is not known to which job the turn goes.
        """
        holder = self._holder(lane)
        if holder is None or holder.seated is None or holder.turn_due:
            return []
        seat = holder.seated.seat  # word by word, in the order in which the job writes them (src/native/turn/turn.c)
        if seat.get("turn") or seat.get("passed_seq") != holder.passed_seq:
            return []
        predecessor = self._predecessor_of(lane)
        return [holder] if predecessor is None else [holder, predecessor]

    def holds(self, job: JobRecord) -> bool:
        """Return whether ``job`` has the turn of its lane, and has been given what it needs for that."""
        self.sync(job.lane)
        return self._holder(job.lane) is job and not job.turn_due

    def passing(self, job: JobRecord) -> bool:
        """Return whether ``job`` may be in the middle of handing its turn over; others wait until it has gone on."""
        self.sync(job.lane)
        return job in self.between(job.lane)

    def wake_successor(self, job: JobRecord) -> None:
        """Wake the job that got the turn of ``job``, which may have no opportunity to do so."""
        successor = self._holder(job.lane)
        if successor is not None and successor is not job and successor.seated is not None:
            successor.seated.board.wake(successor.seated.seat, "turn")
            successor.seated.notify()

    def take_back(self, job: JobRecord) -> None:
        """Settle the turn of ``job``, which is gone: if it died during a hand-over, its named successor gets the turn.

        All ended turns of the job must have been reported (`sync`), unless the core knows that the job is over.
        """
        successor = self._holder(job.lane)
        given = self._predecessor_of(job.lane) is job
        if job.lane is not None:
            if successor is job:
                del self._seating.holder[job.lane]  # another process of the job has no turn
            if given:
                del self._seating.predecessor[job.lane]
        if given and successor is not None and successor is not job and successor.seated is not None:
            _complete(successor, successor.seated.seat)
        self.wake_successor(job)  # `job` may have died before this wake-up

    def _holder(self, lane: LaneId | None) -> JobRecord | None:
        number = self._seating.holder.get(lane) if lane is not None else None
        return self._jobs.live.get(number) if number is not None else None

    def _predecessor_of(self, lane: LaneId | None) -> JobRecord | None:
        number = self._seating.predecessor.get(lane) if lane is not None else None
        predecessor = self._jobs.live.get(number) if number is not None else None
        return predecessor if predecessor is not None and predecessor.seated is not None else None

    def _ended(self, job: JobRecord, seated: Seated, words: SeatWords, to: JobRecord | None) -> None:
        assert job.lane is not None
        self._watchlist.settle(job)
        job.usage, cause = usage_in(job, words, monotonic_us()), cause_of(words.cause)
        if to is None:
            self._seating.free_turn(job.lane)
            self._post(TurnReleased(job.id, cause, job.usage))
            return
        to.switches += 1
        self._seating.give_turn(job.lane, to.id, predecessor=job.id)
        if to.seated is not None and to.seated.seat.get("want"):  # the successor may still sleep
            to.seated.board.wake(to.seated.seat, "turn")
        if self.between(job.lane):  # most often the job is just about to write the successor's `turn`
            self._watchlist.watch(job)
        self._post(TurnPassed(job.id, to.id, cause, job.usage))


def _complete(successor: JobRecord, seat: Seat) -> None:
    """Give a successor the turn that its predecessor had begun to hand over.

    In this order: a job that gives its turn back clears `turn` first and wants another only after it has counted.
    """
    if seat.get("turn") == 0 and seat.get("want") and seat.get("passed_seq") == successor.passed_seq:
        seat.set("turn_start_us", monotonic_us())
        seat.set("turn", 1)


@dataclass(frozen=True, slots=True)
class SeatParts:
    """``view`` returns what the core says of a device at present; ``post`` takes events for the core."""

    jobs: JobTable
    seating: SeatAllocator
    turns: Turns
    successors: Successors
    watchlist: Watchlist
    freed: MemoryFreed
    view: Callable[[DeviceId], DeviceView]
    post: Callable[[Event], None]
