"""The daemon's record of each job's shim, in addition to its session (`carpool.daemon.shims.links`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from carpool.core.events import Event
from carpool.core.model import JobId
from carpool.daemon.channels.router import PacketRouter
from carpool.daemon.hooks.base import Ending, JobHooks
from carpool.daemon.jobs.recovery import Recovery
from carpool.daemon.jobs.table import JobTable
from carpool.daemon.privileges.base import Child, Privileges
from carpool.daemon.shims.links import ShimLinks
from carpool.daemon.system.pidwatch import PidWatch
from carpool.protocol.paths import Home


@dataclass(slots=True)
class Process:
    """The shim of one job."""

    watch: PidWatch | None = None
    child: Child | None = None  # spawned by this daemon
    start_asked: bool = False  # the core wants the job to run
    start_sent: bool = False
    started: bool = False  # the core knows that the job runs
    over: bool = False  # the core knows how the job ended
    forced: bool = False  # the daemon ends the job and the shim (`carpool.daemon.shims.forced_ends`)
    ended: Ending | None = None  # an end reported during a restart
    unread: int = 0  # attempts to read how the job has ended
    signals: list[int] = field(default_factory=list)  # for a shim that has not registered yet

    def keep_signal(self, number: int) -> None:
        """Keep a signal for a shim that has not registered yet; each signal once, however often it is requested."""
        if number not in self.signals:
            self.signals.append(number)


class ShimTable:
    """The records by job, from the first mention of a shim until the job has ended."""

    def __init__(self) -> None:
        self._of: dict[JobId, Process] = {}

    def __iter__(self) -> Iterator[Process]:
        return iter(self._of.values())

    def of(self, job: JobId) -> Process:
        """Return the record of the job's shim; a new one at first."""
        return self._of.setdefault(job, Process())

    def holds(self, job: JobId, process: Process) -> bool:
        """Return whether ``process`` is still the record of the job's shim; otherwise that attempt is over."""
        return self._of.get(job) is process

    def drop(self, job: JobId) -> Process | None:
        """Remove the record of an attempt that is over."""
        return self._of.pop(job, None)


@dataclass(frozen=True, slots=True)
class ShimParts:
    """What all work on shims and ends of jobs needs.  ``post`` takes events for the core."""

    home: Home
    privileges: Privileges
    jobs: JobTable
    links: ShimLinks
    channels: PacketRouter
    recovery: Recovery
    hooks: JobHooks
    table: ShimTable
    post: Callable[[Event], None]
