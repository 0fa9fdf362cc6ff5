"""Jobs that the daemon ends itself, for a reason that their owners read."""

from __future__ import annotations

import logging
import signal
from typing import Protocol

from carpool.core.model import Reason
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.system.log_limit import caused_by

log = logging.getLogger(__name__)


class Signaller(Protocol):
    """Who sends signals to jobs (`carpool.daemon.shims.supervisor`)."""

    def signal(self, job: JobRecord, number: int) -> None:
        """To all processes of the job."""
        ...

    def kill_process(self, pid: int, owner: int) -> None:
        """Nothing happens if the process has ended, or is not that user's."""
        ...


def kill(job: JobRecord, code: str, why: str, processes: Signaller) -> None:
    """The job cannot go on; its end will say why (``code`` for programs).

    The attached process gets the signal from the daemon, too: the job's user may have stopped the shim.
    """
    log.error("job %d is killed: %s", job.id, why, extra=caused_by(job.owner))
    job.fault = job.fault or Reason(code, f"killed by Carpool: {why}")  # the first one is the cause
    processes.signal(job, signal.SIGKILL)
    if job.seated is not None:
        processes.kill_process(job.seated.pid, job.owner)
