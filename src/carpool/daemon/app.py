"""One daemon: its parts, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import sqlite3

import msgspec
from aiohttp import web

from carpool.core.events import CancelRequested, DeviceAdded, RestartBegan, SettingsChanged
from carpool.core.machine import Machine
from carpool.core.model import DeviceId, Settings
from carpool.daemon.api.context import Context
from carpool.daemon.api.server import serve
from carpool.daemon.channels.router import Channels
from carpool.daemon.checkpoint.driver import Checkpointing
from carpool.daemon.checkpoint.jobs import Guests
from carpool.daemon.checkpoint.notes import Notes
from carpool.daemon.checkpoint.restart import CheckpointRestart
from carpool.daemon.checkpoint.suspend import Suspensions
from carpool.daemon.config.mps import MpsPipe
from carpool.daemon.config.options import Options
from carpool.daemon.effects import Effects
from carpool.daemon.engine.selection import Engines
from carpool.daemon.jobs.table import JobTable
from carpool.daemon.journal.device_controls import Controls, read_controls
from carpool.daemon.journal.device_history import History
from carpool.daemon.journal.event_log import Feed, last_seq
from carpool.daemon.journal.model_registry import Models, read_models
from carpool.daemon.journal.records import Store, read_beside, read_history, read_jobs
from carpool.daemon.journal.slowdown_table import PaceTable, read_paces
from carpool.daemon.journal.writer import Journal
from carpool.daemon.loop import CoreLoop
from carpool.daemon.memory.reclaim import Emptying
from carpool.daemon.restart import Restore
from carpool.daemon.seats.allocator import Seating
from carpool.daemon.seats.record import set_grace
from carpool.daemon.seats.sampler import Sampler
from carpool.daemon.shims.retries import Retries
from carpool.daemon.shims.sessions import SessionServer
from carpool.daemon.shims.supervisor import Processes
from carpool.daemon.stopped.markers import KeptStopped
from carpool.daemon.stopped.watchdog import Stopped
from carpool.daemon.system.clock import wall_us
from carpool.daemon.telemetry.service import Telemetry, processes_of, uses_of
from carpool.daemon.telemetry.ungated_processes import Beside
from carpool.devices.base import Device

log = logging.getLogger(__name__)
STOP_MARGIN_S = 5.0


class Daemon:
    """Everything is created in `__init__`, in the order of dependence; `run` brings it to life and to an end."""

    def __init__(self, options: Options, connection: sqlite3.Connection, devices: dict[DeviceId, Device]) -> None:
        home = options.home
        mode = 0o666 if os.geteuid() == 0 else 0o600
        self.options = options
        self.mode = mode
        self.connection = connection
        self.settings = options.chosen_settings
        self.journal = Journal(connection, asyncio.get_running_loop())
        self.feed = Feed(self.journal, home.journal, last_seq(connection))
        self.store = Store(self.journal, read_history(connection), read_beside(connection))
        self.models = Models(self.journal, read_models(connection))
        self.jobs = JobTable()
        self.machine = Machine(self.core_settings)
        self.core = CoreLoop(self.machine, self.feed)
        controls = read_controls(connection, [device.id for device in options.devices])
        self.controls = Controls(controls, self.journal, self.core.post)
        self.devices = devices
        self.seating = Seating(self.jobs, self.devices, self.settings)
        self.seating.close_lanes = options.debug_close_lanes
        self.channels = Channels(
            self.jobs, self.seating, lambda device: self.machine.view().devices[device], self.core.post
        )
        self.sessions = SessionServer(home.session_socket, mode)
        self.processes = Processes(
            *(home, self.jobs, self.store, self.sessions, self.channels, self.core.post, options.threads, self.devices)
        )
        self.processes.environment = MpsPipe(home, options.devices).environment
        self.seating.keep, self.seating.drop = self.processes.keep, self.processes.drop
        self.channels.shim_quiet = self.processes.quiet
        offloads, turns = self.channels.offloads, self.channels.turns
        self.stopped = Stopped(self.jobs, KeptStopped(home.root), turns, self.processes.take, offloads.unanswered)
        offloads.watch, offloads.busy, turns.watch = self.stopped.watch, self.stopped.busy, self.stopped.watch
        self.channels.supply.watch = self.stopped.watch
        effects = Effects(self.jobs, self.processes, self.channels, self.seating, self.store)
        effects.watch = self.stopped.watch
        self.paces = PaceTable(self.journal, read_paces(connection), self.machine.paces)
        effects.job_ended = self.paces.write
        effects.retries = self.retries = Retries(self.processes, self.store)
        guests, notes = Guests(self.jobs, self.processes), Notes(home.root)
        suspensions = Suspensions(notes, self.seating, self.processes)
        self.checkpoint_restart = CheckpointRestart(guests, self.jobs, suspensions, self.processes, self.core.post)
        effects.checkpointing = Checkpointing(guests, notes, self.jobs, suspensions, self.processes, self.core.post)
        self.channels.companions.present = guests.present
        self.core.execute = effects.execute
        self.channels.on_use(self.store.used)
        ours = self.channels.companions.ours
        beside = Beside(self.jobs, self.devices, ours, self.core.post, used=self.store.used)
        self.history = History(self.journal, home.journal)
        self.telemetry = Telemetry(
            self.devices,
            lambda: processes_of(self.jobs, self.processes.shim_pid),
            self.channels.driver_memory.measured,
            options.telemetry_us,
            present=guests.allocating,
            heard=beside.look,
            uses=lambda device: uses_of(self.jobs, device),
            on_load=self.core.post,
            history=self.history,
            shares=self.channels.companions.shares,
        )
        self.ready = asyncio.Event()
        self.stopping = asyncio.Event()
        self.stop_jobs = False

    async def run(self, started: asyncio.Future[None]) -> None:
        """Until somebody asks to stop.  ``started`` is resolved when requests are answered."""
        restore = Restore(
            *(self.options.home, self.jobs, self.store, self.processes, self.channels, self.seating, self.core.post)
        )
        restore.guests = self.checkpoint_restart
        restore.load(list(read_jobs(self.connection)))
        self.sessions.start()
        runner = await serve(self._context(), self.mode)
        started.set_result(None)
        await restore.wait_for_shims()
        await self.checkpoint_restart.restart()
        self.core.post(RestartBegan())
        self.core.post(SettingsChanged(self.core_settings))
        for device in self.options.devices:
            spec = self.controls.spec(device)
            found = self.devices[device.id]
            spec = dataclasses.replace(spec, checkpoint=found.checkpoint, model=found.model)
            self.core.post(DeviceAdded(spec))
        for pace in self.paces.known:
            self.core.post(pace)
        await restore.finish()
        self.stopped.settle()
        self.ready.set()
        always = [Sampler(self.jobs, self.core.post).run(), Emptying(self.devices).run(), self.telemetry.run()]
        tasks = [asyncio.create_task(work) for work in (*always, self.paces.run())]
        await self.stopping.wait()
        if self.stop_jobs:
            await self._end_jobs()
        for task in tasks:
            task.cancel()
        self.paces.write()
        await self.stopped.close()
        await self.channels.copies.close()
        await self._close(runner)

    def stop(self, stop_jobs: bool) -> None:
        self.stop_jobs = self.stop_jobs or stop_jobs
        self.stopping.set()

    def handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop, False)

    async def apply_settings(self, settings: Settings) -> None:
        """Durable first, so that a restarted daemon goes on with what was acknowledged."""
        text = msgspec.json.encode(settings).decode()
        await self.journal.durable("INSERT OR REPLACE INTO meta VALUES ('settings', ?)", (text,))
        self.settings = self.context.settings = settings
        self.seating.grace_us, self.seating.run_ahead_us = settings.grace_us, settings.run_ahead_us
        self.seating.bound_run_ahead()
        for job in self.jobs.live.values():
            if job.seated is not None:
                set_grace(job.seated.seat, settings.grace_us)
        self.core.post(SettingsChanged(self.core_settings))

    @property
    def core_settings(self) -> Settings:
        """The core knows no machine: it is told how large the host store may be."""
        if self.settings.host_store is not None:
            return self.settings
        return dataclasses.replace(self.settings, host_store=self.options.default_store)

    def _context(self) -> Context:
        self.context = Context(
            home=self.options.home,
            uid=os.geteuid(),
            started_us=wall_us(),
            jobs=self.jobs,
            seating=self.seating,
            store=self.store,
            models=self.models,
            engines=Engines(self.devices, self.store.ran_beside),
            feed=self.feed,
            machine=self.machine,
            post=self.core.post,
            settings=self.settings,
            apply_settings=self.apply_settings,
            controls=self.controls,
            telemetry=self.telemetry,
            history=self.history,
            store_room=self.options.store_room,
            default_store=self.options.default_store,
            stop=self.stop,
            ready=self.ready,
            stopping=self.stopping,
        )
        return self.context

    async def _end_jobs(self) -> None:
        """Cancel what runs; what has not started stays queued for the next daemon."""
        self.processes.accepting = False
        running = [job for job in self.jobs.live.values() if self.processes.of(job.id).start_asked]
        for job in running:
            job.mark_cancelled()
            self.core.post(CancelRequested(job.id))
        patience = self.settings.kill_after_us / 1e6 + STOP_MARGIN_S
        await asyncio.gather(*(self.jobs.wait_end(job.id, patience) for job in running))

    async def _close(self, runner: web.AppRunner) -> None:
        self.core.stop()
        self.retries.close()
        self.feed.close()
        self.history.close()
        await runner.cleanup()
        self.sessions.close()
        self.channels.close_all()
        for device in self.devices.values():
            device.close()  # what jobs have they keep
        self.processes.close()
        self.journal.close()
        self.options.home.socket.unlink(missing_ok=True)
