"""Naming successors: a holder reads in its seat to which job it hands its turn, without the daemon."""

from __future__ import annotations

from carpool.core.commands import NameSuccessor
from carpool.core.model import JobId, LaneId
from carpool.daemon.jobs.table import JobRecord, JobTable, Seated
from carpool.daemon.seats.allocator import SeatAllocator


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
