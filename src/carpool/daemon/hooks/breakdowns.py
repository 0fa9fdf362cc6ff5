"""Where the time of each job goes: recorded when the job has ended, for `carpool simulate --from-journal`.

A job computes alone while no other lane of its device has a turn.  On a host device other jobs that start up use the
same processors: they are company if there are as many as processors.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import partial

from carpool.core.model import DeviceId, JobId
from carpool.daemon.hooks.base import JobHook, Work
from carpool.daemon.jobs.breakdown import AWAY, Breakdown
from carpool.daemon.jobs.breakdown_clocks import HostTime
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.breakdowns import BreakdownRow, breakdown_statement
from carpool.daemon.journal.writer import Journal
from carpool.daemon.system.clock import monotonic_us
from carpool.facts.fact import Fact, Told, What
from carpool.telemetry.host import usable_cores
from carpool.telemetry.process_trees import ProcessorTime, processor_time

INTERVAL_S = 0.2
#: Between looks whether the first iteration of a job has ended, which is worth to be known exactly.
QUICK_S = 0.02


class JobBreakdowns(JobHook):
    """Follows all jobs.  ``host_devices``: devices whose jobs compute on ``cores`` of the host."""

    def __init__(
        self, jobs: JobTable, journal: Journal, host_devices: Collection[DeviceId], cores: int | None = None
    ) -> None:
        self._jobs = jobs
        self._journal = journal
        self._host_devices = host_devices
        self._cores = cores or usable_cores()
        self._attempts: dict[JobId, Breakdown] = {}
        self._starting: set[JobId] = set()
        self._computing: dict[DeviceId, dict[JobId, Breakdown]] = defaultdict(dict)
        self._uncompared: set[DeviceId] = set()

    def take(self, told: Told) -> None:
        """Take what a fold of everything that is recorded tells, in order."""
        if not isinstance(told, Fact):
            return
        if told.what == What.QUEUED:
            self._queued(told)
        elif told.what in AWAY:
            self._away(told)

    def _queued(self, fact: Fact) -> None:
        """Follow an attempt that starts, in place of an earlier one."""
        self._forget(fact.job)
        if fact.end_us is not None and fact.how == "placed":
            self._attempts[fact.job] = Breakdown(HostTime(fact.end_us), fresh=True)
            self._note_start(fact.job, True)

    def _away(self, fact: Fact) -> None:
        """Handle that a job leaves the host, or comes back to it."""
        attempt = self._attempts.get(fact.job)
        if attempt is None:
            attempt = self._attempts[fact.job] = Breakdown(HostTime(None), fresh=False)
        if fact.what == What.TURN:
            self._turn(fact, attempt)
        if fact.end_us is not None:
            attempt.host.comes_back(fact.what, fact.end_us)
        elif fact.start_us is not None:
            attempt.host.leaves(fact.what, fact.start_us)
        self._note_start(fact.job, attempt.host.starts)

    def _turn(self, fact: Fact, attempt: Breakdown) -> None:
        """Handle that a turn begins or ends."""
        if fact.end_us is None:
            attempt.turn_begins(fact, partial(self._read, fact.job))
            self._computing[fact.device][fact.job] = attempt
        elif self._computing[attempt.device].pop(fact.job, None) is not None:
            self._look(fact.job, attempt)
            attempt.turn_ends(fact)
        self._changed(attempt.device)

    # Company

    def _note_start(self, job: JobId, starts: bool) -> None:
        """Note whether a job starts up, which others on host devices may feel."""
        if starts is not (job in self._starting):
            (self._starting.add if starts else self._starting.discard)(job)
            for device in self._host_devices:
                self._changed(device)

    def _changed(self, device: DeviceId) -> None:
        """Compare the company on a device when all is known that has happened at this moment."""
        if device not in self._uncompared:
            self._uncompared.add(device)
            asyncio.get_running_loop().call_soon(self._compare, device)

    def _compare(self, device: DeviceId) -> None:
        self._uncompared.discard(device)
        crowded = device in self._host_devices and len(self._starting) >= self._cores
        quiet = len(self._computing[device]) == 1 and not crowded
        for job, attempt in self._computing[device].items():
            if attempt.pace.quiet is not quiet:
                self._look(job, attempt)
                attempt.pace.meets(quiet)

    # Seats and processes

    def _look(self, number: JobId, attempt: Breakdown) -> None:
        """Read the seat, also as its process has left it."""
        job = self._jobs.live.get(number)
        words = None if job is None else job.left_seat if job.seated is None else job.seated.seat.snapshot()
        if words is not None:
            attempt.look(words, monotonic_us())

    def _read(self, number: JobId) -> ProcessorTime | None:
        job = self._jobs.live.get(number)
        pid = None if job is None else job.pid if job.seated is None else job.seated.pid
        return None if pid is None else processor_time(pid, monotonic_us())

    def work(self) -> Mapping[str, Work]:
        """Look at the jobs that have computed, several times a second, and more often at those that warm up."""
        return {"measuring where the time of jobs goes": self._run}

    async def _run(self) -> None:
        now_s = asyncio.get_running_loop().time
        while True:
            due_s = now_s() + INTERVAL_S
            while now_s() < due_s and any(each.warms_up(monotonic_us()) for each in self._attempts.values()):
                await asyncio.sleep(QUICK_S)
                self.look(quick=True)
            await asyncio.sleep(max(0.0, due_s - now_s()))
            self.look()

    def look(self, *, quick: bool = False) -> None:
        """Look at all jobs that have computed and have a seat.  ``quick``: only at those that warm up."""
        now = monotonic_us()
        for number, attempt in self._attempts.items():
            job = self._jobs.live.get(number)
            wanted = attempt.warms_up(now) if quick else attempt.host.computed
            if wanted and job is not None and job.seated is not None:
                self._look(number, attempt)
                if attempt.boundary_us or not quick:
                    attempt.tick(monotonic_us(), partial(self._read, number))

    # The end

    def ended(self, job: JobRecord) -> None:
        """Record the breakdown of the last attempt; services have none."""
        attempt = self._attempts.get(job.id)
        if attempt is not None and job.started_us is not None and job.spec.service is None:
            attempt.host.stop(monotonic_us())
            attempt.pace.meets(True)
            sql, rows = breakdown_statement(_row(job.id, attempt))
            self._journal.owe(sql, rows, droppable=True)
        self._forget(job.id)

    def _forget(self, job: JobId) -> None:
        attempt = self._attempts.pop(job, None)
        if attempt is not None:
            self._computing[attempt.device].pop(job, None)
            self._note_start(job, False)


def _row(job: JobId, attempt: Breakdown) -> BreakdownRow:
    host, pace, started = attempt.host, attempt.pace, attempt.started if attempt.fresh else None
    worked, end_us = attempt.processor.worked, host.pending_us + attempt.kept_us if host.computed else 0
    end = attempt.processor.after(attempt.worked_us, end_us)
    return BreakdownRow(
        job=job,
        startup_us=(host.startup_us if host.computed else host.pending_us) if attempt.fresh else None,
        startup_turn_us=attempt.startup.turn_us if attempt.startup else 0,
        startup_iterations=attempt.startup.iterations if attempt.startup else 0,
        startup_cpu_us=started.cpu_us if started else None,
        startup_delay_us=started.delay_us if started else None,
        work_delay_us=worked.delay_us - started.delay_us if worked and started else None,
        host_us=host.between_us if attempt.fresh else None,
        end_us=end_us,
        end_turn_us=attempt.kept_us,
        end_cpu_us=end.cpu_us if end else None,
        end_delay_us=end.delay_us if end else None,
        alone_us=pace.alone.turn_us,
        alone_iterations=pace.alone.iterations,
        beside_us=pace.beside.turn_us,
        beside_iterations=pace.beside.iterations,
    )
