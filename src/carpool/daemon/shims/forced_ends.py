"""Ends of jobs whose shims do not end them: a shim is a process of the job's user, who may have stopped it.

The signal that ends a job goes to its shim, which is continued if it is stopped.  If the job is still alive a moment
after SIGKILL, the daemon ends its control group, every process below its shim, and the shim itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.privileges.base import try_to_signal
from carpool.daemon.shims.job_ends import JobEnds
from carpool.daemon.shims.orphans import end_tree
from carpool.daemon.shims.shim_table import Process, ShimParts
from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.processes import is_stopped, state_of

log = logging.getLogger(__name__)
#: How long after SIGKILL a shim may take for the end of its job.
SHIM_PATIENCE_S = 0.6
#: Time between looks whether a shim that is to start a job has been stopped.
START_PATIENCE_S = 5.0
ENDING = (signal.SIGTERM, signal.SIGKILL)
#: The words of a shim's command line that name its home, job and attempt (`carpool.runtime.shim.__main__`).
_OF_SHIM = slice(4, 7)


class ForcedEnds:
    """Makes sure that a signal that is to end a job does so."""

    def __init__(self, parts: ShimParts, ends: JobEnds) -> None:
        self._home = parts.home
        self._privileges = parts.privileges
        self._links = parts.links
        self._table = parts.table
        self._ends = ends

    def signalled(self, job: JobRecord, number: int) -> None:
        """Follow up on a signal that the job's shim has been sent for its job, or will be sent when it registers."""
        if number not in ENDING:
            return
        shim, process = self._shim(job), self._table.of(job.id)
        if shim is not None and is_stopped(shim, job.owner):
            try_to_signal(self._privileges, shim, job.owner, signal.SIGCONT)
        if number == signal.SIGKILL:
            asyncio.get_running_loop().call_later(SHIM_PATIENCE_S, self._force, job, process)

    def await_start(self, job: JobRecord, end: Callable[[], None]) -> None:
        """Call ``end`` if the user stops the shim that is to start the job before the shim reports the start."""
        asyncio.get_running_loop().call_later(START_PATIENCE_S, self._see_start, job, self._table.of(job.id), end)

    def _see_start(self, job: JobRecord, process: Process, end: Callable[[], None]) -> None:
        if process.started or process.over or not self._table.holds(job.id, process):
            return
        shim = self._shim(job)
        if shim is not None and is_stopped(shim, job.owner):
            end()
        else:
            self.await_start(job, end)

    def _force(self, job: JobRecord, process: Process) -> None:
        if process.over or process.forced or not self._table.holds(job.id, process):
            return
        shim = self._shim(job) or self._found(job)
        process.forced = True
        text = "job %d has not been ended by its shim, process %s: the daemon ends both"
        log.warning(text, job.id, shim or "unknown", extra=caused_by(job.owner))
        root = job.pid if job.spec.foreground else shim  # the shim of a terminal may have children of its own
        work = [] if root is None else [partial(end_tree, self._privileges, job.owner, root)]
        work += [] if shim is None else [partial(try_to_signal, self._privileges, shim, job.owner, signal.SIGKILL)]
        self._ends.force(job, process, shim, work)

    def _shim(self, job: JobRecord) -> int | None:
        """Return the pid of the present attempt's shim, if this daemon has seen it."""
        child = self._table.of(job.id).child
        return self._links.pid(job.id) or (None if child is None else child.pid)

    def _found(self, job: JobRecord) -> int | None:
        """Find an earlier daemon's shim by its command line, among the processes of the job's owner."""
        wanted = [os.fsencode(self._home.root), b"%d" % job.id, b"%d" % job.attempt]
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and _words(path)[_OF_SHIM] == wanted and state_of(int(path.name), job.owner):
                return int(path.name)
        return None


def _words(process: Path) -> list[bytes]:
    """Return the words of a process's command line; empty if it has ended."""
    try:
        return (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
