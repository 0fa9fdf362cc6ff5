"""Requests of engines, as their fronts report them: what the core does with turns follows from that.

A report that an engine is busy counts for `LEASE_S`, and a front repeats it while there are requests: one that ends
without a word leaves no engine in the way of other jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from carpool.core.events import Event, ServiceBusy
from carpool.core.model import JobId
from carpool.daemon.hooks.base import JobHook
from carpool.daemon.jobs.table import JobRecord

LEASE_S = 30.0


class EngineRequests(JobHook):
    """Tells the core when engines have requests."""

    def __init__(self, post: Callable[[Event], None], lease_s: float = LEASE_S) -> None:
        self._post = post
        self._lease_s = lease_s
        self._busy: dict[JobId, asyncio.TimerHandle] = {}  # the ends of reports

    def report(self, job: JobId, busy: bool) -> None:
        """Handle the report of a front."""
        known = self._busy.pop(job, None)
        if known is not None:
            known.cancel()
        if busy:
            self._busy[job] = asyncio.get_running_loop().call_later(self._lease_s, self.report, job, False)
        if busy != (known is not None):
            self._post(ServiceBusy(job, busy))

    def ended(self, job: JobRecord) -> None:
        """Forget the reports about a job."""
        if (known := self._busy.pop(job.id, None)) is not None:
            known.cancel()

    def stop(self) -> None:
        """Forget all reports: the fronts repeat theirs to the next daemon."""
        for known in self._busy.values():
            known.cancel()
        self._busy.clear()
