"""Pauses of modelled jobs for services; the jobs resume exactly where they were.

Pausing is not a switch: the lane stays the job's own and nothing is saved, so `--switch-cost` does not count.  A job
that pauses while it is on the host goes on there, but uses the device only after it has resumed.
"""

from __future__ import annotations

from carpool.core.events import TurnPaused, TurnReleased
from carpool.core.model import Cause
from carpool.sim.jobs.modelled_job import Doing, SeatedJob
from carpool.sim.jobs.turn_taking import TurnTaking
from carpool.sim.model.agenda import Driver
from carpool.sim.model.options import Options


class Pausing:
    """Turns that pause.  A paused job does not hold its turn; no other job gets the turn."""

    def __init__(self, driver: Driver, options: Options, turns: TurnTaking) -> None:
        self._driver = driver
        self._turns = turns

    def request(self, job: SeatedJob, forced: bool) -> None:
        """Ask the job to pause at its next boundary, or at once if ``forced``; ignored if its turn has ended."""
        if not job.holds:
            return
        job.yield_asked, job.pause_asked = None, True
        if forced:
            self.pause(job, Cause.FORCED)
        else:
            self._turns.watch(job, True)

    def pause(self, job: SeatedJob, cause: Cause) -> None:
        """Pause the job, and report it."""
        was = job.doing
        self._turns.leave_turn(job)
        job.paused = True
        job.result.pauses += 1
        if cause is Cause.EARLY and was is Doing.COMPUTING:
            self._turns.finish_on_host(job)
        elif was is not Doing.MEMORY:
            job.doing = Doing.TURN
        self._driver.post(TurnPaused(job.number, job.usage(self._driver.now)))

    def resume(self, job: SeatedJob) -> None:
        """Resume the job where it was."""
        now = self._driver.now
        job.paused, job.holds, job.began_us = False, True, now
        job.yield_asked, job.successor, job.watched_at = None, None, None
        if job.doing is Doing.HOST:
            job.motion.skip_to(job.back[0] - self._turns.leave_host(job))
        job.start_us = job.motion.position_us()  # it makes progress before it pauses at a boundary again
        if job.doing is Doing.MEMORY:
            return
        if job.store.stored:  # part of its memory was still in the store when the job paused
            job.doing = Doing.SWITCHING
            self._turns.plan(job, now + job.store.return_us, self._turns.switched)
        else:
            self._turns.go_on(job)

    def give_up(self, job: SeatedJob) -> None:
        """Give the turn of a paused job away at once."""
        job.paused = False
        job.result.preemptions += 1
        self._driver.post(TurnReleased(job.number, Cause.FORCED, job.usage(self._driver.now)))
        if job.doing is Doing.TURN:
            self._turns.go_on(job)
