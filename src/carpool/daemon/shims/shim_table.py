"""The daemon's record of each job's shim, its session with the shim, and its requests to the shim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from carpool.core.events import Event
from carpool.core.model import JobId
from carpool.daemon.channels.router import PacketRouter
from carpool.daemon.hooks.base import Ending, JobHooks
from carpool.daemon.jobs.seat_table import OwnedFd, release
from carpool.daemon.jobs.table import JobTable
from carpool.daemon.jobs.watchlist import Recovery
from carpool.daemon.privileges.base import Child, Privileges
from carpool.daemon.seats.ledger import GrantLedger
from carpool.daemon.shims.sessions import Session
from carpool.daemon.system.pidwatch import PidWatch
from carpool.daemon.system.processes import is_stopped
from carpool.protocol import session as messages
from carpool.protocol.packets import MAX_FDS
from carpool.protocol.paths import Home


class ShimLinks:
    """At most one session for each job: the one with which its shim has registered last."""

    def __init__(self, ledger: GrantLedger, owner: Callable[[JobId], int | None]) -> None:
        """``owner`` returns the uid of a job's owner."""
        self.ledger = ledger
        self._owner = owner
        self._sessions: dict[JobId, Session] = {}

    def connect(self, job: JobId, session: Session) -> None:
        """Record the session of a shim that has registered; an earlier session of the job is closed."""
        self.disconnect(job)
        self._sessions[job] = session

    def disconnect(self, job: JobId) -> None:
        """Close the session when the job's present attempt is over; does nothing if no shim has registered."""
        session = self._sessions.pop(job, None)
        if session is not None:
            session.close()

    def of(self, job: JobId) -> Session | None:
        """Return the session of a job's shim, which may have ended since; None: no shim has registered."""
        return self._sessions.get(job)

    def still_open(self, job: JobId) -> Session | None:
        """Return the session of a job's shim if the session has not ended."""
        session = self.of(job)
        return None if session is None or session.closed else session

    def pid(self, job: JobId) -> int | None:
        """Return the shim's pid; None: no shim has registered."""
        session = self.of(job)
        return None if session is None else session.pid

    def keep(self, job: JobId, memory: Mapping[str, OwnedFd], attached_pid: int | None) -> None:
        """Let the shim hold duplicates, so that the memory outlives the daemon.  Raises WrongOwner."""
        session, names, descriptors = self.of(job), list(memory), release(memory.values(), self._owner(job))
        self.ledger.keep(job, {name: held.fd for name, held in memory.items()})
        if session is None:
            return
        for begin in range(0, len(names), MAX_FDS):
            some = slice(begin, begin + MAX_FDS)
            session.send(messages.Keep(names[some], attached_pid), descriptors[some])

    def drop(self, job: JobId, names: list[str]) -> None:
        """Let the shim close what it keeps under these names."""
        self.ledger.drop(job, names)
        session = self.of(job)
        if session is not None and names:
            session.send(messages.Drop(names))

    def quiet(self, job: JobId) -> bool:
        """Return whether the shim has been sent everything."""
        session = self.still_open(job)
        return session is None or session.outbox.empty

    def take(self, job: JobId, bank: str, store: str) -> bool:
        """Let the shim move the job's memory, named as the shim keeps it; the answer goes to `Offloads.taken`.

        False if that is impossible: Ctrl-Z in a terminal stops the job and its shim, and a process that has joined has
        no shim.
        """
        session = self.still_open(job)
        if session is None or session.process is not None or is_stopped(session.pid, session.uid):
            return False
        session.send(messages.Take(bank, store))
        return True


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
    """The parts that all work on shims and ends of jobs needs.  ``post`` takes events for the core."""

    home: Home
    privileges: Privileges
    jobs: JobTable
    links: ShimLinks
    channels: PacketRouter
    recovery: Recovery
    hooks: JobHooks
    table: ShimTable
    post: Callable[[Event], None]
