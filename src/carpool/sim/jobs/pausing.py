"""How modelled jobs pause for services, and go on exactly where they were.

Pausing is no switch: the lane stays the job's own and nothing is saved, so `--switch-cost` does not count.  A job that
pauses while it is on the host goes on there; the device it touches only when it is let.
"""

from __future__ import annotations

from carpool.core import commands
from carpool.core.events import TurnPaused, TurnReleased
from carpool.core.model import Cause
from carpool.sim.jobs.modelled_job import Doing, SeatedJob
from carpool.sim.jobs.turn_taking import LaneTurns


class LanePauses(LaneTurns):
    """Turns that pause.  A job that has paused does not hold its turn any more; nobody else gets it."""

    def _pause_turn(self, command: commands.PauseTurn) -> None:
        job = self._jobs[command.job]
        if not job.holds:
            return  # its turn has ended meanwhile
        job.yield_asked, job.pause_asked = None, True
        if command.forced:
            self._pause(job, Cause.FORCED)
        else:
            self._watch(job, True)

    def _let_go(self, job: SeatedJob, cause: Cause) -> None:
        if job.pause_asked:
            self._pause(job, cause)
        else:
            super()._let_go(job, cause)

    def _pause(self, job: SeatedJob, cause: Cause) -> None:
        was = job.doing
        self._leave_turn(job)
        job.paused = True
        job.result.pauses += 1
        if cause is Cause.EARLY and was is Doing.COMPUTING:
            self._finish_on_host(job)
        elif was is not Doing.MEMORY:
            job.doing = Doing.TURN
        self._driver.post(TurnPaused(job.number, job.usage(self._driver.now, self._switch_us)))

    def _grant_turn(self, command: commands.GrantTurn) -> None:
        job = self._jobs[command.job]
        if job.paused:
            self._resume(job)
        else:
            super()._grant_turn(command)

    def _resume(self, job: SeatedJob) -> None:
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
            self._plan(job, now + job.store.return_us, self._switched)
        else:
            self._go_on(job)

    def _request_yield(self, command: commands.RequestYield) -> None:
        """One that has paused takes no notice, unless it has to give its turn away at once."""
        job = self._jobs[command.job]
        if not job.paused:
            super()._request_yield(command)
        elif command.forced:
            job.paused = False
            job.result.preemptions += 1
            self._driver.post(TurnReleased(job.number, Cause.FORCED, job.usage(self._driver.now, self._switch_us)))
            if job.doing is Doing.TURN:
                self._go_on(job)
