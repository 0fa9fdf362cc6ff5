"""One daemon: its parts, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3

import msgspec
from aiohttp import web

from carpool.core.events import CancelRequested, DeviceAdded, RestartBegan, SettingsChanged
from carpool.core.machine import Machine
from carpool.core.model import DeviceId, DeviceSpec, Settings
from carpool.daemon.api.context import Context
from carpool.daemon.api.server import serve
from carpool.daemon.channels import Channels
from carpool.daemon.clock import wall_us
from carpool.daemon.effects import Effects
from carpool.daemon.feed import Feed, last_seq
from carpool.daemon.jobs import JobTable
from carpool.daemon.journal import Journal
from carpool.daemon.loop import CoreLoop
from carpool.daemon.options import Options
from carpool.daemon.processes import Processes
from carpool.daemon.restore import Restore
from carpool.daemon.sampler import Sampler
from carpool.daemon.seating import Seating
from carpool.daemon.sessions import SessionServer
from carpool.daemon.store import Store, read_history, read_jobs
from carpool.devices.base import Device
from carpool.devices.host import HostDevice

log = logging.getLogger(__name__)
STOP_MARGIN_S = 5.0


class Daemon:
    """Everything is created in `__init__`, in the order of dependence; `run` brings it to life and to an end."""

    def __init__(self, options: Options, connection: sqlite3.Connection) -> None:
        home = options.home
        mode = 0o666 if os.geteuid() == 0 else 0o600
        self.options = options
        self.mode = mode
        self.connection = connection
        self.settings = options.settings
        self.journal = Journal(connection, asyncio.get_running_loop())
        self.feed = Feed(self.journal, home.journal, last_seq(connection))
        self.store = Store(self.journal, read_history(connection))
        self.jobs = JobTable()
        self.machine = Machine(self.settings)
        self.core = CoreLoop(self.machine, self.feed)
        self.devices: dict[DeviceId, Device] = {d.id: HostDevice(d.id, d.capacity) for d in options.devices}
        self.seating = Seating(self.jobs, self.devices, self.settings)
        self.channels = Channels(self.jobs, self.seating, self.core.post)
        self.sessions = SessionServer(home.session_socket, mode)
        self.processes = Processes(
            home, self.jobs, self.store, self.sessions, self.channels, self.core.post, options.threads
        )
        self.seating.keep, self.seating.drop = self.processes.keep, self.processes.drop
        effects = Effects(self.jobs, self.processes, self.channels, self.seating, self.store)
        self.core.execute = effects.execute
        self.ready = asyncio.Event()
        self.stopping = asyncio.Event()
        self.stop_jobs = False

    async def run(self, started: asyncio.Future[None]) -> None:
        """Until somebody asks to stop.  ``started`` is resolved when requests are answered."""
        restore = Restore(
            *(self.options.home, self.jobs, self.store, self.processes, self.channels, self.seating, self.core.post)
        )
        restore.load(list(read_jobs(self.connection)))
        self.sessions.start()
        runner = await serve(self._context(), self.mode)
        started.set_result(None)
        await restore.wait_for_shims()
        self.core.post(RestartBegan())
        self.core.post(SettingsChanged(self.settings))
        for device in self.options.devices:
            self.core.post(DeviceAdded(DeviceSpec(device.id, device.capacity)))
        await restore.finish()
        self.ready.set()
        sampler = asyncio.create_task(Sampler(self.jobs, self.core.post).run())
        await self.stopping.wait()
        if self.stop_jobs:
            await self._end_jobs()
        sampler.cancel()
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
        self.seating.grace_us = settings.grace_us
        for job in self.jobs.live.values():
            if job.seated is not None:
                job.seated.seat.set("grace_us", settings.grace_us)
        self.core.post(SettingsChanged(settings))

    def _context(self) -> Context:
        self.context = Context(
            home=self.options.home,
            uid=os.geteuid(),
            started_us=wall_us(),
            jobs=self.jobs,
            seating=self.seating,
            store=self.store,
            feed=self.feed,
            machine=self.machine,
            post=self.core.post,
            settings=self.settings,
            apply_settings=self.apply_settings,
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
        self.feed.close()
        await runner.cleanup()
        self.sessions.close()
        self.channels.close_all()
        self.processes.close()
        self.journal.close()
        self.options.home.socket.unlink(missing_ok=True)
