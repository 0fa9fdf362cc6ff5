"""Stopped processes that joined an earlier daemon: they cannot come back by themselves, and may hold a turn.

For other jobs the shim comes back.  A stopped process is continued until it has come back, and stopped again.
Otherwise, once continued by a user, it would compute in a lane that others have by then, until the daemon hears of it.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterable

from carpool.core.model import JobId
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.privileges.base import Privileges, signal_process
from carpool.daemon.seats.ledger import GrantLedger
from carpool.daemon.sigstop.markers import StopMarkers
from carpool.daemon.system.processes import STOPPED, start_time, state_of

log = logging.getLogger(__name__)


class JoinedReturns:
    """Brings stopped processes back while a restarted daemon waits for the jobs of its predecessor."""

    def __init__(self, jobs: JobTable, ledger: GrantLedger, privileges: Privileges, markers: StopMarkers) -> None:
        self._jobs = jobs
        self._ledger = ledger
        self._privileges = privileges
        self._markers = markers
        self._woken: dict[JobId, int] = {}  # continued jobs, and their pids

    def look(self, missing: Iterable[JobId]) -> None:
        """Continue the stopped processes among ``missing``, and stop those again that have come back or have ended."""
        waited_for = set(missing)
        for number in sorted(waited_for - self._woken.keys()):
            job = self._jobs.live.get(number)
            if job is not None and job.spec.joined:
                self._wake(job)
        for number in sorted(self._woken.keys() - waited_for):
            self._calm(number)

    def end(self) -> None:
        """Stop waiting for processes."""
        self.look(())

    def _wake(self, job: JobRecord) -> None:
        pid, started = self._ledger.of(job.id).process or (0, 0)
        if pid and start_time(pid) == started and state_of(pid, job.owner) == STOPPED:
            self._woken[job.id] = pid
            self._markers.note(job.id)
            self._signal(job, pid, signal.SIGCONT)

    def _calm(self, number: JobId) -> None:
        pid, job = self._woken.pop(number), self._jobs.live.get(number)
        if job is not None:
            self._signal(job, pid, signal.SIGSTOP)
        self._markers.forget(number)

    def _signal(self, job: JobRecord, pid: int, number: signal.Signals) -> None:
        try:
            signal_process(self._privileges, pid, job.owner, number)
        except OSError as error:
            log.error("process %d of job %d, which is stopped, cannot be signalled: %s", pid, job.id, error)
