"""Measuring the devices again and again, in threads that may hang without anybody's waiting for them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping

from carpool.core.model import DeviceId, JobId, Micros
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
Guests = tuple[int, frozenset[JobId]] | None
Present = Callable[[DeviceId], Guests]
NOBODY: Guests = (0, frozenset())


class Telemetry:
    """What devices do.

    ``roots`` names the processes that belong to jobs.  ``on_foreign`` hears, on the loop, how many bytes of a device's
    capacity cannot be had at present though they are in no lane or bank, whenever that changes; it was 0 before.
    """

    def __init__(
        self,
        devices: Mapping[DeviceId, Device],
        roots: Callable[[], Roots],
        on_foreign: Foreign | None = None,
        interval_us: Micros = INTERVAL_US,
        present: Present = lambda device: NOBODY,
    ) -> None:
        self._devices = devices
        self._roots = roots
        self._on_foreign = on_foreign
        self._present = present
        self._interval_us = interval_us
        self._windows = {device: Window(WINDOW_US, STALE_INTERVALS * interval_us) for device in devices}
        self._foreign: dict[DeviceId, int] = {}
        # Bytes of lanes and banks, and jobs that have memory of their own, when it was asked for the sample to come.
        self._asked: dict[DeviceId, int] = {}
        self._guests: dict[DeviceId, Guests] = {}
        self._failures: dict[DeviceId, str] = {}

    async def run(self) -> None:
        workers = self._workers()
        try:
            while True:
                for worker, devices in workers:
                    roots = {} if devices[0].kind == "host" else self._roots()
                    targets = [target_of(device) for device in devices]
                    if worker.ask(targets, roots):
                        self._asked |= {target.device: target.used_bytes for target in targets}
                        self._guests |= {target.device: self._present(target.device) for target in targets}
                await asyncio.sleep(self._interval_us / 1e6)
        finally:
            for worker, _ in workers:
                worker.stop()

    @property
    def interval_us(self) -> Micros:
        return self._interval_us

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
                self._tell_foreign(self._devices[device], result)
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

    def _tell_foreign(self, device: Device, sample: Sample) -> None:
        """Where it is not known (any more), or lanes changed while somebody looked, what was known last goes on."""
        granted = device.used_bytes()
        if device.kind == "host" or sample.free_bytes is None or granted != self._asked[device.id]:
            return
        known = self._of_guests(device.id, sample)
        if known is None:
            return
        size = max(0, device.capacity - granted - known - sample.free_bytes)
        if size != self._foreign.get(device.id, 0):
            self._foreign[device.id] = size
            if self._on_foreign is not None:
                self._on_foreign(device.id, size)

    def _of_guests(self, device: DeviceId, sample: Sample) -> int | None:
        """Bytes of jobs that allocate for themselves, for which the core keeps the whole device anyway.

        None: that is not known, because the driver does not say, or one has come or left meanwhile.
        """
        guests = self._present(device)
        if guests is None or guests != self._guests.get(device):
            return None
        jobs = guests[1]
        if not jobs:
            return 0
        sizes = [process.used_bytes for process in sample.processes or () if process.owner in jobs]
        if sample.processes is None or None in sizes:
            return None
        return sum(size for size in sizes if size is not None)


def target_of(device: Device) -> Target:
    """A device with NVML's name for it, if it has one, and what the daemon itself knows of it."""
    return Target(device.id, device.capacity, device.used_bytes(), device.uuid)


def processes_of(jobs: JobTable, shim_of: Callable[[int], int | None]) -> dict[int, int]:
    """Carpool's own processes by what they are of: the daemon, each job's first process, its shim and its seat's."""
    roots = {os.getpid(): CARPOOL}
    for job in [job for job in jobs.live.values() if job.pid is not None]:
        pids = (shim_of(job.id), job.pid, None if job.seated is None else job.seated.pid)
        roots |= {pid: job.id for pid in pids if pid is not None}
    return roots
