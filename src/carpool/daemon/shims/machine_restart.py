"""After a restart of the machine, which no process survives: jobs that ran are started again, or are lost."""

from __future__ import annotations

from carpool.core.model import Attempt, Reason
from carpool.daemon.jobs.files import read_exit, was_started
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.shims.job_ends import JobEnds
from carpool.daemon.shims.retries import record_failure
from carpool.daemon.shims.shim_table import ShimParts

TEXT = "the machine restarted"


class MachineRestart:
    """Settles interrupted jobs.  ``happened``: the machine has restarted since an earlier daemon ran."""

    def __init__(self, parts: ShimParts, store: JournalStore, ends: JobEnds, *, happened: bool) -> None:
        self._home = parts.home
        self._privileges = parts.privileges
        self._jobs = parts.jobs
        self._store = store
        self._ends = ends
        self._happened = happened

    async def settle(self) -> None:
        """End the attempts that had begun and not ended, before the core is told of the jobs."""
        for job in list(self._jobs.live.values()):
            if not (self._happened and self._was_interrupted(job)):
                continue
            if job.spec.requeue and job.startable and not job.cancelled:
                again = job.again(Attempt(TEXT, job.device), job.estimate, None, None)
                await record_failure(self._store, again)
                self._jobs.live[job.id] = again
            else:
                job.fault = Reason("machine_restarted", TEXT)

    def _was_interrupted(self, job: JobRecord) -> bool:
        files, privileges = self._home.job(job.id, job.attempt), self._privileges
        begun = was_started(privileges, files, job.owner)
        return begun and read_exit(privileges, files, job.owner) is None and not self._ends.lives(job.id)
