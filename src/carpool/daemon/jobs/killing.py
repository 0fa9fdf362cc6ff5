"""Jobs that the daemon kills itself, with a reason for their owners."""

from __future__ import annotations

import logging
import signal
from typing import Protocol

from carpool.core.model import JobId, Reason
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.system.log_limit import caused_by

log = logging.getLogger(__name__)


class Signaller(Protocol):
    """Sends signals to jobs (`carpool.daemon.shims.supervisor`)."""

    def signal(self, job: JobRecord, number: int) -> None:
        """Send a signal to all processes of the job."""
        ...

    def kill_process(self, pid: int, owner: int) -> None:
        """Kill a process; does nothing if the process has ended or does not belong to ``owner``."""
        ...


def kill(job: JobRecord, code: str, why: str, processes: Signaller) -> None:
    """Kill a job that cannot go on, and record why (``code`` for programs) as the reason of its end.

    The daemon signals the attached process directly, too: the job's user may have stopped the shim.
    """
    log.error("job %d is killed: %s", job.id, why, extra=caused_by(job.owner))
    job.fault = job.fault or Reason(code, f"killed by Carpool: {why}")  # the first one is the cause
    processes.signal(job, signal.SIGKILL)
    if job.seated is not None:
        processes.kill_process(job.seated.pid, job.owner)


def kill_unread(jobs: JobTable, processes: Signaller, number: JobId, why: str) -> None:
    """Kill a job that does not read what it is sent, if it has not ended."""
    job = jobs.live.get(number)
    if job is not None:
        kill(job, "unread", why, processes)
