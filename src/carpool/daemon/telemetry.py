"""Measuring the devices once a second, in threads that may hang without anybody's waiting for them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping

from carpool.core.model import DeviceId, Micros
from carpool.daemon.clock import monotonic_us
from carpool.daemon.jobs import JobTable
from carpool.daemon.worker import Worker
from carpool.devices.base import Device
from carpool.monitor.readers import Found, GpuReader, HostReader, Reader, Roots, Target
from carpool.monitor.sample import CARPOOL, Sample
from carpool.monitor.window import State, Window

log = logging.getLogger(__name__)
INTERVAL_US: Micros = 1_000_000
WINDOW_US: Micros = 60_000_000
STALE_INTERVALS = 5
Foreign = Callable[[DeviceId, int], None]


class Telemetry:
    """What devices do.

    ``roots`` names the processes that belong to jobs.  ``on_foreign`` hears, on the loop, of the bytes that processes
    have that Carpool did not start, whenever they change; they were 0 before.
    """

    def __init__(
        self,
        devices: Mapping[DeviceId, Device],
        roots: Callable[[], Roots],
        on_foreign: Foreign | None = None,
        interval_us: Micros = INTERVAL_US,
    ) -> None:
        self._devices = devices
        self._roots = roots
        self._on_foreign = on_foreign
        self._interval_us = interval_us
        self._windows = {device: Window(WINDOW_US, STALE_INTERVALS * interval_us) for device in devices}
        self._foreign: dict[DeviceId, int] = {}
        self._failures: dict[DeviceId, str] = {}

    async def run(self) -> None:
        workers = self._workers()
        try:
            while True:
                for worker, devices in workers:
                    roots = {} if devices[0].kind == "host" else self._roots()
                    worker.ask([target_of(device) for device in devices], roots)
                await asyncio.sleep(self._interval_us / 1e6)
        finally:
            for worker, _ in workers:
                worker.stop()

    def state(self, device: DeviceId) -> State:
        return self._windows[device].state(monotonic_us())

    def recent(self, device: DeviceId) -> list[Sample]:
        """The samples of the last minute, oldest first."""
        return self._windows[device].recent(monotonic_us())

    def _workers(self) -> list[tuple[Worker, list[Device]]]:
        """One for each kind of device, so that a GPU that hangs does not keep the host devices waiting."""
        readers: dict[str, Callable[[], Reader]] = {
            "host": lambda: HostReader(monotonic_us),
            "cuda": lambda: GpuReader(monotonic_us),
        }
        made = []
        for kind, reader in readers.items():
            devices = [device for device in self._devices.values() if device.kind == kind]
            if devices:
                made.append((Worker(f"telemetry-{kind}", reader, self._arrived), devices))
        return made

    def _arrived(self, found: Found) -> None:
        for device, result in found.items():
            window = self._windows[device]
            if isinstance(result, Sample):
                window.add(result)
                self._note(device, "")
                self._tell_foreign(device, result.foreign_bytes)
            else:
                window.fail(str(result))
                self._note(device, str(result))

    def _note(self, device: DeviceId, failure: str) -> None:
        """Into the log, but only what is new."""
        before = self._failures.get(device, "")
        self._failures[device] = failure
        if failure and failure != before:
            log.warning("%s cannot be measured: %s", device, failure)
        elif before and not failure:
            log.info("%s is measured again", device)

    def _tell_foreign(self, device: DeviceId, size: int | None) -> None:
        """Where it is not known any more, what was known last goes on."""
        if size is None or size == self._foreign.get(device, 0):
            return
        self._foreign[device] = size
        if self._on_foreign is not None:
            self._on_foreign(device, size)


def target_of(device: Device) -> Target:
    """A device with NVML's name for it, if it has one, and what the daemon itself knows of it."""
    if device.kind == "host":
        return Target(device.id, device.capacity, device.used_bytes())
    return Target(device.id, device.capacity, uuid=getattr(device, "uuid", ""))


def processes_of(jobs: JobTable, shim_of: Callable[[int], int | None]) -> dict[int, int]:
    """Carpool's own processes by what they are of: the daemon, each job's first process, its shim and its seat's."""
    roots = {os.getpid(): CARPOOL}
    for job in [job for job in jobs.live.values() if job.pid is not None]:
        pids = (shim_of(job.id), job.pid, None if job.seated is None else job.seated.pid)
        roots |= {pid: job.id for pid in pids if pid is not None}
    return roots
