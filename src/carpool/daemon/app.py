"""One daemon: its parts, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack

import msgspec

from carpool.core.events import CancelRequested, DeviceAdded, Event, RestartBegan, SettingsChanged
from carpool.core.machine import Machine
from carpool.core.model import DeviceId, Settings
from carpool.daemon.api.context import Caller, Context, EngineStates, LargeBodies, ModelStates
from carpool.daemon.api.server import ApiServer, serve
from carpool.daemon.api.submit import join
from carpool.daemon.build import Built, Parts
from carpool.daemon.cgroups.job_groups import JobGroups
from carpool.daemon.config.limits import UserLimits
from carpool.daemon.config.options import DaemonOptions
from carpool.daemon.config.settings import CurrentSettings
from carpool.daemon.hooks.breakdowns import JobBreakdowns
from carpool.daemon.hooks.registry import HookParts, job_hooks
from carpool.daemon.jobs.submissions import SubmissionRate
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.jobs.watchlist import Recovery, Watchlist
from carpool.daemon.journal.contents import StoredJournal
from carpool.daemon.journal.events import Feed
from carpool.daemon.journal.history import HistoryKeeper
from carpool.daemon.journal.models import Controls, Models, read_controls
from carpool.daemon.journal.records import AloneTimes, JournalStore
from carpool.daemon.journal.restart_record import PACES, BootRecord, CoreFigures, MomentRecord
from carpool.daemon.journal.turns import PastTurns, kept_turns
from carpool.daemon.journal.usage import DEVICES, USE, DeviceHistory
from carpool.daemon.journal.writer import Journal
from carpool.daemon.loop import CoreLoop
from carpool.daemon.memory.overuse import Reclaim
from carpool.daemon.metrics.page import DaemonMetrics
from carpool.daemon.metrics.present import Now
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.seats.ledger import open_ledger
from carpool.daemon.seats.record import Sampler
from carpool.daemon.shims.sessions import Session, SessionServer
from carpool.daemon.shims.shim_table import ShimLinks
from carpool.daemon.shims.spawn import ShimSpawner
from carpool.daemon.sigstop.stopped import JoinedPauses
from carpool.daemon.system.alarms import limit_end
from carpool.daemon.system.allowance import Allowances
from carpool.daemon.system.background import go_on
from carpool.daemon.system.clock import WallSteps, wall_us
from carpool.daemon.system.in_flight import InFlightTable
from carpool.daemon.system.peer import peer_credentials, peer_groups
from carpool.daemon.system.processes import keep_what_is_there
from carpool.daemon.telemetry.host_memory import HostMemory
from carpool.daemon.telemetry.service import DeviceUses, Listeners, TelemetryService, processes_of, uses_of
from carpool.daemon.telemetry.ungated_processes import BusyTimes, UngatedProcesses
from carpool.devices.base import DeviceBackend, in_extents
from carpool.facts.fold import FactFeed
from carpool.protocol.api import ControlGroups, SubmitRequest

log = logging.getLogger(__name__)
STOP_MARGIN_S = 5.0
CLOCK_S = 1.0
#: Limit for the daemon's end, once no jobs are to be ended, until its process is gone.
END_S = 30.0
#: How long the daemon waits, before it places jobs, for a GPU's driver to report what other programs have.
FIRST_LOOK_S = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """Everything found and acquired at the start of a daemon.

    ``boot``: the identifier of this boot; ``groups``: control groups of jobs, and ``control_groups``: what the API says
    of them; ``metrics``: the TCP socket that serves Prometheus.
    """

    boot: str
    privileges: Privileges
    groups: JobGroups
    control_groups: ControlGroups
    metrics: socket.socket | None = None


class Daemon:
    """The daemon.  `__init__` makes all parts in the order of dependence; `run` starts them and ends them."""

    def __init__(
        self,
        options: DaemonOptions,
        limits: UserLimits,
        stored: StoredJournal,
        devices: dict[DeviceId, DeviceBackend],
        start: Start,
    ) -> None:
        home = options.home
        self.options = options
        self.limits = limits
        self.mode = 0o666 if start.privileges.serves_others else 0o600
        self.started = start
        self.stored = contents = stored.contents
        self.acknowledged = stored.acknowledged
        self.devices = devices
        self.settings = CurrentSettings(options.chosen_settings, options.default_store)
        controls = read_controls(stored.connection, [device.id for device in options.devices])
        self.journal = Journal(stored.connection, asyncio.get_running_loop(), acknowledge=stored.acknowledged.reach)
        self.boot = BootRecord(self.journal, start.boot, contents.boot_id not in (None, start.boot))
        self.store = JournalStore(self.journal, contents.history, contents.unsuspendable)
        self.models = Models(self.journal, contents.models)
        self.history = DeviceHistory(self.journal, home.journal)
        moments = MomentRecord(self.journal)
        same_boot = contents.boot_id == start.boot
        self.steps = WallSteps(contents.wall_ahead_us if same_boot else None)
        self.jobs = JobTable(self.steps, moments.write)
        self.metrics = DaemonMetrics(self.journal.behind_s)
        self.turns = PastTurns(self.journal, home.journal)
        self.alone_times = AloneTimes(self.jobs, self.journal)
        hook_parts = HookParts(
            home,
            start.privileges,
            limits,
            self.jobs,
            self.journal,
            start.groups,
            notices=contents.notices,
            host_devices=[device.id for device in devices.values() if device.kind == "host"],
            post=lambda event: self.core.post(event),
        )
        self.hooks = job_hooks(hook_parts)
        self.facts = FactFeed(self.metrics.events.take, self.turns.take, self.hooks.of(JobBreakdowns).take)
        heard = (self.metrics.events.happened, self.facts.happened, self.alone_times.happened)
        self.feed = Feed(self.journal, home.journal, contents.last_seq, heard)
        self.ledger = open_ledger(home)
        self.in_flight = InFlightTable()
        self.shims = ShimLinks(self.ledger, self.jobs.owner)
        self.machine = Machine(self.settings.for_core)
        self.figures = CoreFigures(self.journal, contents.figures, self.machine.paces, self.machine.uses)
        self.core = CoreLoop(self.machine, self.feed, self._build, self.jobs.owner)
        self.parts = self.core.executor
        self.controls = Controls(controls, self.journal, self.core.post)
        said = Allowances(limits.packets_per_s)
        self.sessions = SessionServer(
            home.session_socket, self.mode, self.parts.processes, said, self.in_flight, limits.connections
        )
        self.telemetry = self._telemetry()
        self.host_memory = HostMemory(self.jobs, devices, self.core.post)
        self.metrics.look_up(self._now())
        self.ready = asyncio.Event()
        self.stopping = asyncio.Event()
        self.stop_jobs = self.helper_lost = self.jobs_ended = False
        self.context = self._context()

    def _keeper(self) -> HistoryKeeper:
        turns = kept_turns(int(self.limits.keep_turns), int(self.limits.keep_for))
        return HistoryKeeper(self.journal, self.options.home.journal, (turns, DEVICES, USE, PACES))

    def _starting(self) -> ShimSpawner:
        options, environment = self.options, self.options.mps_environment
        return ShimSpawner(options.home, self.devices, options.threads, environment, int(self.limits.job_log))

    def _build(self, post: Callable[[Event], None]) -> Built:
        return Built(
            Parts(
                starting=self._starting(),
                privileges=self.started.privileges,
                devices=self.devices,
                settings=self.settings.current,
                limits=self.limits,
                jobs=self.jobs,
                store=self.store,
                shims=self.shims,
                in_flight=self.in_flight,
                hooks=self.hooks,
                watchlist=Watchlist(),
                recovery=Recovery(),
                machine_restarted=self.boot.restarted,
                view=lambda device: self.machine.view().devices[device],
                job_ended=self.figures.write,
                post=post,
                close_lanes=self.options.debug_close_lanes,
                accept=self._accept_joined,
            )
        )

    async def _accept_joined(self, session: Session, asked: SubmitRequest) -> JobRecord:
        """Make a job of a process that joins, with the rights of its user.  Raises RequestError, JournalFull."""
        return await join(
            self.context, Caller(*peer_credentials(session.connection)[1:], peer_groups(session.connection)), asked
        )

    def _telemetry(self) -> TelemetryService:
        parts = self.parts
        ungated = UngatedProcesses(self.jobs, parts.secondary.ours, self.core.post)
        busy = BusyTimes(self.jobs)
        uses = DeviceUses(
            roots=lambda: processes_of(self.jobs, self.shims.pid),
            present=parts.checkpoint_jobs.allocating,
            uses=lambda device: uses_of(self.jobs, device),
            shares=lambda device: parts.secondary.shares(device) + parts.memory.supply.made(device),
            returning=parts.memory.supply.returning,
        )
        listeners = Listeners(parts.memory.driver.measured, (ungated.look, busy.heard), self.core.post)
        return TelemetryService(self.devices, uses, listeners, self.options.telemetry_us, self.history)

    def _now(self) -> Now:
        return Now(
            machine=self.machine,
            jobs=self.jobs,
            sample=lambda device: self.telemetry.state(device).sample,
            used=lambda: {device.id: device.used_bytes() for device in self.devices.values()},
            store_budget=self._store_budget,
        )

    def _store_budget(self) -> int:
        chosen = self.settings.current.host_store
        return self.options.default_store if chosen is None else chosen

    async def run(self, started: asyncio.Future[None], listening: socket.socket | None = None) -> None:
        """Run until the daemon is asked to stop.  ``started`` is resolved when requests are answered.

        ``listening``: the API's socket, if it exists already.
        """
        self.started.privileges.watch(self._lose_helper)
        self.parts.restore.load(self.stored)
        self.jobs.now_us()  # the wall clock may have been set since the last daemon
        self.ledger.forget_others(() if self.boot.restarted else self.jobs.live)
        self.hooks.restored(self.jobs)
        self.sessions.start()
        server = await serve(self.context, self.mode, listening, self.started.metrics)
        started.set_result(None)
        try:
            await self._work()
        finally:
            self.jobs_ended = True
            self._limit_end()
            await self._close(server)

    async def _work(self) -> None:
        """Restore what an earlier daemon has left, then serve until a signal or a request asks the daemon to stop."""
        await self._restart()
        keep_what_is_there()
        self.ready.set()
        always = {
            "reading the seats": Sampler(self.jobs, self.core.post).run,
            "giving memory back": Reclaim(self.devices, self.machine.usable).run,
            "telemetry": self.telemetry.run,
            "watching the clock": self._watch_clock,
            "measuring the machine's memory": self.host_memory.run,
            "recording slowdowns and use": self.figures.run,
            "looking after stopped jobs": self.parts.watchdog.run,
            "pausing stopped processes": JoinedPauses(self.jobs, self.store, self.core.post).run,
            "counting memory": self.parts.overuse.run,
            "measuring the loop": self.metrics.run,
            "recording turns": self.turns.run,
            "keeping history": self._keeper().run,
            **self.hooks.work(),
        }
        tasks = [asyncio.create_task(go_on(name, work)) for name, work in always.items()]
        await self.stopping.wait()
        if self.stop_jobs:
            await self._end_jobs()
        for task in tasks:
            task.cancel()

    async def _watch_clock(self) -> None:
        """Move the times of jobs with the wall clock, before a request asks how long ago they are."""
        while True:
            await asyncio.sleep(CLOCK_S)
            self.jobs.now_us()

    async def _restart(self) -> None:
        """Tell the core the present state: settings, devices, slowdowns, users' use, and an earlier daemon's jobs."""
        await self.parts.restore.wait_for_shims()
        await self.parts.checkpoint_restart.restart()
        self.core.post(RestartBegan())
        self.core.post(SettingsChanged(self.settings.for_core))
        for device in self.options.devices:
            spec = self.controls.spec(device)
            found = self.devices[device.id]
            spec = dataclasses.replace(spec, checkpoint=found.checkpoint, model=found.model)
            spec = dataclasses.replace(spec, context=found.context, pins=in_extents(found))
            self.core.post(DeviceAdded(spec))
        await self.telemetry.look_first(FIRST_LOOK_S)
        await self.host_memory.look()
        for pace in self.figures.paces:
            self.core.post(pace)
        for use in self.figures.uses:
            self.core.post(use)
        await self.parts.restore.finish()
        self.alone_times.settle()
        self.boot.settled(self.steps.ahead_us)
        self.parts.watchdog.settle()

    def stop(self, stop_jobs: bool) -> None:
        """Ask the daemon to stop.  ``stop_jobs``: cancel running jobs first; otherwise jobs go on without a daemon."""
        self.stop_jobs = self.stop_jobs or stop_jobs
        self.stopping.set()

    def _lose_helper(self) -> None:
        """Stop: nothing can be started without the helper; the next daemon gets a new helper and the running jobs."""
        log.error("the helper, which runs as root, has ended: the daemon ends, too, and jobs go on")
        self.helper_lost = True
        self.stop(False)

    def handle_signals(self) -> None:
        """Let SIGTERM and Ctrl-C end the daemon and leave the jobs alone, even where the loop hangs."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop, False)
            signal.signal(number, self._limit_end)  # the loop gets the signal through its own descriptor

    def _limit_end(self, *_: object) -> None:
        """Limit the time until the daemon's end, unless jobs are being ended, which has a limit of its own."""
        if not self.stop_jobs or self.jobs_ended:
            limit_end(END_S)

    async def apply_settings(self, settings: Settings) -> None:
        """Apply settings, after making them durable so that a restarted daemon continues with what was acknowledged."""
        text = msgspec.json.encode(settings).decode()
        await self.journal.durable("INSERT OR REPLACE INTO meta VALUES ('settings', ?)", (text,))
        self.settings.change(settings)
        self.parts.seating.apply(settings)
        self.core.post(SettingsChanged(self.settings.for_core))

    def _context(self) -> Context:
        return Context(
            home=self.options.home,
            privileges=self.started.privileges,
            uid=os.geteuid(),
            started_us=wall_us(),
            jobs=self.jobs,
            seating=self.parts.seating,
            store=self.store,
            models=self.models,
            model_states=ModelStates(self.machine.weights_on_devices),
            engine_states=EngineStates(),
            feed=self.feed,
            machine=self.machine,
            post=self.core.post,
            settings=self.settings,
            limits=self.limits,
            submission_rate=SubmissionRate(self.limits.submissions_at_once, self.limits.submissions_per_s),
            bodies=LargeBodies(),
            admin_gid=self.limits.admin_gid,
            apply_settings=self.apply_settings,
            controls=self.controls,
            telemetry=self.telemetry,
            history=self.history,
            turns=self.turns,
            metrics=self.metrics,
            options=self.options,
            hooks=self.hooks,
            stop=self.stop,
            notice=self.stored.notice,
            control_groups=self.started.control_groups,
            gone=self.stored.gone,
            ready=self.ready,
            stopping=self.stopping,
        )

    async def _end_jobs(self) -> None:
        """Cancel running jobs; jobs that have not started stay queued for the next daemon."""
        self.parts.processes.stop_starting()
        running = [job for job in self.jobs.live.values() if self.parts.processes.starts(job.id)]
        for job in running:
            job.mark_cancelled()
            self.core.post(CancelRequested(job.id))
        patience = self.settings.current.kill_after_us / 1e6 + STOP_MARGIN_S
        await asyncio.gather(*(self.jobs.wait_end(job.id, patience) for job in running))

    async def _close(self, server: ApiServer) -> None:
        """Close the parts, the last one first; a part that fails does not keep the others from being closed."""
        async with AsyncExitStack() as stack:
            stack.callback(self.started.privileges.close)
            stack.callback(self.ledger.close)
            stack.callback(self.hooks.close)
            stack.callback(self.options.home.socket.unlink, missing_ok=True)
            stack.callback(self.acknowledged.close)
            stack.callback(self.journal.close)
            stack.callback(self.parts.processes.close)
            for device in self.devices.values():
                stack.callback(device.close)  # jobs keep the memory that they have
            stack.callback(self.parts.channels.close_all)
            stack.callback(self.sessions.close)
            stack.push_async_callback(server.close)
            for part in (self.history, self.turns, self.facts, self.feed, self.parts.retries):
                stack.callback(part.close)
            stack.callback(self.hooks.stop)
            stack.callback(self.core.stop)
            stack.push_async_callback(self.parts.memory.copies.close)
            stack.push_async_callback(self.parts.watchdog.close)
            stack.callback(self.figures.write)
