"""How modelled jobs pause for services, and go on exactly where they were.

Pausing is no switch: the lane stays the job's own and nothing is saved, so `--switch-cost` does not count.  A job that
pauses while it is on the host goes on there; the device it touches only when it is let.
"""

from __future__ import annotations

from carpool.core.events import TurnPaused, TurnReleased
from carpool.core.model import Cause
from carpool.sim.jobs.modelled_job import Doing, SeatedJob
from carpool.sim.jobs.turn_taking import TurnTaking
from carpool.sim.model.agenda import Driver
from carpool.sim.model.options import Options


class Pausing:
    """Turns that pause.  A job that has paused does not hold its turn any more; nobody else gets it."""

    def __init__(self, driver: Driver, options: Options, turns: TurnTaking) -> None:
        self._driver = driver
        self._switch_us = options.switch_cost_us
        self._turns = turns

    def request(self, job: SeatedJob, forced: bool) -> None:
        """The job is to pause at its next boundary, or at once if ``forced``; not if its turn has ended meanwhile."""
        if not job.holds:
            return
        job.yield_asked, job.pause_asked = None, True
        if forced:
            self.pause(job, Cause.FORCED)
        else:
            self._turns.watch(job, True)

    def pause(self, job: SeatedJob, cause: Cause) -> None:
        """The job has let go of the device, and says so."""
        was = job.doing
        self._turns.leave_turn(job)
        job.paused = True
        job.result.pauses += 1
        if cause is Cause.EARLY and was is Doing.COMPUTING:
            self._turns.finish_on_host(job)
        elif was is not Doing.MEMORY:
            job.doing = Doing.TURN
        self._driver.post(TurnPaused(job.number, job.usage(self._driver.now, self._switch_us)))

    def resume(self, job: SeatedJob) -> None:
        """The job may go on where it was."""
        now = self._driver.now
        job.paused, job.holds, job.began_us = False, True, now
        job.yield_asked, job.successor, job.watched_at = None, None, None
        if job.doing is Doing.HOST:
            position, when = job.back
            job.motion.skip_to(position - (when - now))
            job.plan += 1
        job.start_us = job.motion.position_us()  # it gets on before it pauses at a boundary again
        if job.doing is Doing.MEMORY:
            return
        if job.store.stored:  # it had not all come back when the job paused
            job.doing = Doing.SWITCHING
            self._turns.plan(job, now + job.store.return_us, self._turns.switched)
        else:
            self._turns.go_on(job)

    def give_up(self, job: SeatedJob) -> None:
        """A job that has paused gives its turn away at once."""
        job.paused = False
        job.result.preemptions += 1
        self._driver.post(TurnReleased(job.number, Cause.FORCED, job.usage(self._driver.now, self._switch_us)))
        if job.doing is Doing.TURN:
            self._turns.go_on(job)
