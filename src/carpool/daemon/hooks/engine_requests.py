"""Engines as their fronts report them: which are ready, and which have requests.  Turns and ends follow from that.

A report counts for `LEASE_S`, and a front repeats it: one that ends without a word leaves no engine in the way of other
jobs, nor is it waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from carpool.core.commands import StopEngine
from carpool.core.events import EngineServed, Event, ServiceBusy
from carpool.core.memory.idle_engines import PATIENCE_US
from carpool.core.model import JobId
from carpool.daemon.hooks.base import Commands, JobHook, Signals
from carpool.daemon.jobs.table import JobRecord

LEASE_S = 30.0


class EngineRequests(JobHook):
    """Tells the core which engines have a front, and which requests; and fronts, which engines are to end."""

    def __init__(self, post: Callable[[Event], None], lease_s: float = LEASE_S) -> None:
        self._busy = _Reports(lambda job, busy: post(ServiceBusy(job, busy)), lease_s)
        self._served = _Reports(lambda job, served: post(EngineServed(job, served)), lease_s)
        self._to_end: dict[JobId, float] = {}  # the time of the loop until which the core waits for the end

    def report(self, job: JobId, busy: bool) -> None:
        """Handle the report of a front whether an engine has requests."""
        self._busy.report(job, busy)

    def serve(self, engines: Iterable[JobId]) -> list[JobId]:
        """Handle the report of a front that these engines are ready; return those that are to end now, if idle."""
        now_s, engines = asyncio.get_running_loop().time(), tuple(engines)
        for engine in engines:
            self._served.report(engine, True)
        return [engine for engine in engines if self._to_end.pop(engine, 0.0) > now_s]

    def commands(self, signals: Signals) -> Commands:
        """Return the command to end an engine, of which its front hears with its next report."""
        return {StopEngine: self._stop_engine}

    def _stop_engine(self, command: StopEngine) -> None:
        self._to_end[command.job] = asyncio.get_running_loop().time() + PATIENCE_US / 1e6

    def ended(self, job: JobRecord) -> None:
        """Forget the reports about a job."""
        self._busy.forget(job.id)
        self._served.forget(job.id)
        self._to_end.pop(job.id, None)

    def stop(self) -> None:
        """Forget all reports: the fronts repeat theirs to the next daemon."""
        self._busy.clear()
        self._served.clear()


class _Reports:
    """Reports that something is so, each of which count for a time.  ``tell`` hears of changes."""

    def __init__(self, tell: Callable[[JobId, bool], None], lease_s: float) -> None:
        self._tell = tell
        self._lease_s = lease_s
        self._ends: dict[JobId, asyncio.TimerHandle] = {}

    def report(self, job: JobId, truth: bool) -> None:
        known = self.forget(job)
        if truth:
            lapse = partial(self.report, job, False)
            self._ends[job] = asyncio.get_running_loop().call_later(self._lease_s, lapse)
        if truth != known:
            self._tell(job, truth)

    def forget(self, job: JobId) -> bool:
        """Forget a report; return whether there was one."""
        known = self._ends.pop(job, None)
        if known is not None:
            known.cancel()
        return known is not None

    def clear(self) -> None:
        for job in tuple(self._ends):
            self.forget(job)
