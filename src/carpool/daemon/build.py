"""Puts together the parts of the daemon around the core: for the daemon, and for tests that play the core.

Each part takes its dependencies when it is made; nothing is assigned to it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import DeviceId, Settings
from carpool.core.policies.view import DeviceView
from carpool.daemon.channels.connections import JobConnections
from carpool.daemon.channels.router import PacketRouter
from carpool.daemon.channels.secondary import SecondaryProcesses
from carpool.daemon.checkpoint.driver import Checkpointing
from carpool.daemon.checkpoint.jobs import CheckpointJobs, CheckpointRestart
from carpool.daemon.checkpoint.suspend import Notes, Suspensions
from carpool.daemon.config.limits import UserLimits
from carpool.daemon.effects import LaneEffects, MemoryEffects, ProcessEffects, TurnEffects
from carpool.daemon.hooks.base import JobHooks
from carpool.daemon.jobs.killing import kill_unread
from carpool.daemon.jobs.table import JobTable
from carpool.daemon.jobs.watchlist import Recovery, Watchlist
from carpool.daemon.journal.records import JournalStore
from carpool.daemon.memory.copies import StoreCopies
from carpool.daemon.memory.overuse import OveruseWatch
from carpool.daemon.memory.parts import MemoryParts
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.restart import FoundJobs, Restart
from carpool.daemon.seats.allocator import MemoryFreed, SeatAllocator
from carpool.daemon.seats.services import TurnPauses
from carpool.daemon.seats.turns import SeatParts, Successors, Turns
from carpool.daemon.shims.durable_steps import MachineRestart, Retries
from carpool.daemon.shims.job_ends import JobEnds
from carpool.daemon.shims.joining import Accept, JoinHandler, no_joins
from carpool.daemon.shims.shim_table import ShimLinks, ShimParts, ShimTable
from carpool.daemon.shims.spawn import ShimSpawner
from carpool.daemon.shims.supervisor import Processes
from carpool.daemon.sigstop.stopped import JoinedReturns, StopMarkers
from carpool.daemon.sigstop.watchdog import Watchdog
from carpool.daemon.system.allowance import Allowances
from carpool.daemon.system.in_flight import InFlightTable
from carpool.devices.base import DeviceBackend


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts from which the rest is built.

    ``post`` takes events for the core; ``view`` is what the core says of a device at present;
    ``machine_restarted``: the machine has restarted since an earlier daemon ran;
    ``accept`` makes jobs of processes that join;
    ``job_ended`` is called when the end of a job has been recorded; ``close_lanes``, for debugging, closes memory in
    extents between turns.
    """

    starting: ShimSpawner
    privileges: Privileges
    devices: dict[DeviceId, DeviceBackend]
    settings: Settings
    limits: UserLimits
    jobs: JobTable
    store: JournalStore
    shims: ShimLinks
    in_flight: InFlightTable
    hooks: JobHooks
    watchlist: Watchlist
    recovery: Recovery
    machine_restarted: bool
    view: Callable[[DeviceId], DeviceView]
    job_ended: Callable[[], None]
    post: Callable[[Event], None]
    close_lanes: bool = False
    accept: Accept = no_joins


class Built:
    """The parts that the daemon and tests use afterwards, made in the order of dependence."""

    def __init__(self, parts: Parts) -> None:
        jobs, post, shims, store = parts.jobs, parts.post, parts.shims, parts.store
        watchlist, recovery, freed = parts.watchlist, parts.recovery, MemoryFreed()
        home, privileges = parts.starting.home, parts.privileges
        self.lines = lines = JobConnections(jobs, Allowances(parts.limits.packets_per_s), parts.in_flight)
        self.checkpoint_jobs, copies = CheckpointJobs(jobs), StoreCopies(parts.devices, freed)
        self.seating = seating = SeatAllocator(
            jobs, parts.devices, parts.settings, shims, copies, freed, parts.close_lanes
        )
        self.turns, pauses = Turns(jobs, seating, watchlist, post), TurnPauses(watchlist, post)
        successors = Successors(jobs, seating)
        seats = SeatParts(jobs, seating, self.turns, successors, watchlist, freed, parts.view, post)
        self.memory = memory = MemoryParts(seats, copies, lines, shims)
        self.secondary = SecondaryProcesses(seats, lines, memory.driver, self.checkpoint_jobs)
        self.channels = PacketRouter(seats, lines, pauses, memory, self.secondary, recovery, used=store.used)
        joining = JoinHandler(home, privileges, jobs, shims, parts.accept, post)
        shim = ShimParts(home, privileges, jobs, shims, self.channels, recovery, parts.hooks, ShimTable(), post)
        ends = JobEnds(shim, joining)
        self.processes = processes = Processes(shim, parts.starting, store, memory.offloads, ends, joining)
        parts.in_flight.listen(partial(kill_unread, jobs, processes))
        self.retries = Retries(processes, ends, store)
        notes = Notes(home.root)
        suspensions = Suspensions(notes, parts.devices, shims)
        checkpointing = Checkpointing(
            self.checkpoint_jobs, notes, jobs, suspensions, processes, store.why_not_suspended, post
        )
        self.checkpoint_restart = CheckpointRestart(
            self.checkpoint_jobs, jobs, suspensions, shims, processes, store.why_not_suspended, post
        )
        machine_restart = MachineRestart(shim, store, ends, happened=parts.machine_restarted)
        markers = StopMarkers(home.root, privileges)
        returns = JoinedReturns(jobs, shims.ledger, privileges, markers)
        self.found = FoundJobs(shim, seating, lines, memory, self.secondary, processes, returns)
        self.watchdog = Watchdog(jobs, markers, watchlist, self.turns, memory.offloads, processes, privileges)
        self.overuse = OveruseWatch(jobs, parts.devices, memory.weights, processes)
        self.restore = Restart(
            shim, store, ends, self.found, self.checkpoint_restart, machine_restart, parts.limits.retry_pause_us
        )
        self._methods = {
            **ProcessEffects(shim, store, processes, self.retries, checkpointing, parts.job_ended).table,
            **LaneEffects(jobs, seating, lines, memory, successors).table,
            **MemoryEffects(jobs, memory).table,
            **TurnEffects(jobs, seating, pauses, memory, successors, checkpointing, watchlist).table,
        }

    def execute(self, command: Command) -> None:
        """Carry out a command of the core without waiting.  The loop logs its errors and goes on with the next one."""
        self._methods[type(command)](command)
