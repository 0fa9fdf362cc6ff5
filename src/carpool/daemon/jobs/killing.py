"""Jobs that the daemon ends itself, for a reason that their owners read."""

from __future__ import annotations

import logging
import os
import signal
from typing import Protocol

from carpool.core.model import Reason
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.system.process_state import state_of

log = logging.getLogger(__name__)


class Signaller(Protocol):
    """Who sends signals to jobs (`carpool.daemon.shims.supervisor`)."""

    def signal(self, job: JobRecord, number: int) -> None:
        """To all processes of the job."""
        ...


def kill(job: JobRecord, code: str, why: str, processes: Signaller) -> None:
    """The job cannot go on; its end will say why (``code`` for programs).

    The attached process gets the signal from the daemon, too: the job's user may have stopped the shim.
    """
    log.error("job %d is killed: %s", job.id, why)
    job.fault = Reason(code, f"killed by Carpool: {why}")
    processes.signal(job, signal.SIGKILL)
    if job.seated is not None:
        _kill_process(job.seated.pid, job.owner)


def _kill_process(pid: int, owner: int) -> None:
    """Nothing happens if the process has ended, or is not that user's."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if state_of(pid, owner):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)
