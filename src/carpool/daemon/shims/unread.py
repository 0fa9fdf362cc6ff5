"""Ends jobs with a process that does not receive what it is sent: the waiting packets would grow without bound."""

from __future__ import annotations

from carpool.core.model import JobId
from carpool.daemon.jobs.killing import Signaller, kill
from carpool.daemon.jobs.table import JobTable
from carpool.daemon.system.in_flight import InFlightTable


class UnreadJobs:
    """Kills such jobs."""

    def __init__(self, jobs: JobTable, processes: Signaller, in_flight: InFlightTable) -> None:
        self._jobs = jobs
        self._processes = processes
        in_flight.listen(self._end)

    def _end(self, number: JobId, why: str) -> None:
        job = self._jobs.live.get(number)
        if job is not None:
            kill(job, "unread", why, self._processes)
