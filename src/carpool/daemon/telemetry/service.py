"""Repeated measurement of the devices, in threads that may hang without holding up the daemon."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from carpool.core.events import DeviceLoad
from carpool.core.model import DeviceId, JobId, Micros
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.usage import DeviceHistory
from carpool.daemon.seats.record import turn_us
from carpool.daemon.system.clock import monotonic_us, wall_us
from carpool.daemon.telemetry.load_events import Known, Loads
from carpool.daemon.telemetry.reader_thread import ReaderThread
from carpool.devices.base import DeviceBackend
from carpool.telemetry.activity import JobUse
from carpool.telemetry.readers import Found, GpuReader, HostReader, Reader, Roots, Target, bytes_of_others
from carpool.telemetry.samples import CARPOOL, Sample, Unavailable, Window, WindowState

log = logging.getLogger(__name__)
INTERVAL_US: Micros = 1_000_000
WINDOW_US: Micros = 30_000_000
STALE_INTERVALS = 5
GPU = "cuda"
Foreign = Callable[[DeviceId, int, int, int], None]
Uses = Callable[[DeviceId], tuple[JobUse, ...]]
Allocating = tuple[int, frozenset[JobId]] | None
Present = Callable[[DeviceId], Allocating]
NOBODY: Allocating = (0, frozenset())


@dataclass(frozen=True, slots=True)
class DeviceUses:
    """The jobs' use of the devices.

    ``roots`` names the processes that belong to jobs, ``uses`` what the jobs of a host device have done by their seats.
    ``present``: checkpoint jobs on a device; ``shares``: bytes of a device that secondary processes have, or jobs have
    made themselves within their grants.  ``returning``: whether jobs of a device still map memory that was given back.
    """

    roots: Callable[[], Roots]
    present: Present = lambda device: NOBODY
    uses: Uses = lambda device: ()
    shares: Callable[[DeviceId], int] = lambda device: 0
    returning: Callable[[DeviceId], bool] = lambda device: False


@dataclass(frozen=True, slots=True)
class Listeners:
    """The receivers of measurements, called on the loop.

    ``foreign`` is called whenever one of three sizes of a device changes (0 at first): bytes of its capacity that are
    unavailable though they are in no lane or bank, how many of them other programs have, and bytes that are free beyond
    the capacity.  ``load`` gets what the core is to know of the load, each of ``samples`` every sample.
    """

    foreign: Foreign | None = None
    samples: Sequence[Callable[[DeviceId, Sample], None]] = ()
    load: Callable[[DeviceLoad], None] = lambda load: None


class TelemetryService:
    """Measures devices and reports the results."""

    def __init__(
        self,
        devices: Mapping[DeviceId, DeviceBackend],
        uses: DeviceUses,
        listeners: Listeners,
        interval_us: Micros = INTERVAL_US,
        history: DeviceHistory | None = None,
    ) -> None:
        self._devices = devices
        self._uses = uses
        self._listeners = listeners
        self._loads = Loads(listeners.load)
        self._history = history
        self.interval_us = interval_us
        self._since_us = monotonic_us()
        self._windows = {device: Window(WINDOW_US, STALE_INTERVALS * interval_us) for device in devices}
        self._foreign: dict[DeviceId, tuple[int, int, int]] = {}
        # Bytes of lanes and banks, and jobs with memory of their own, at the time when the next sample was requested.
        self._asked: dict[DeviceId, int] = {}
        self._given_back: set[DeviceId] = set()  # devices of which less was managed then than at the request before
        self._checkpoint_jobs: dict[DeviceId, Allocating] = {}
        self._failures: dict[DeviceId, str] = {}
        self._workers: list[tuple[ReaderThread, list[DeviceBackend]]] = []
        self._first: asyncio.Event | None = None  # set by the first answer of GPUs, while `look_first` waits

    async def look_first(self, limit_s: float) -> None:
        """Before the core knows any job, find the GPU memory that other programs have, so that none of it is granted.

        Waits no longer than ``limit_s``; later answers of a driver are handled by `run`, which also tries again where
        no thread could be started.
        """
        try:
            self._workers = self._new_workers()
        except RuntimeError as error:
            log.error("the devices cannot be measured yet: %s", error)
        gpus = [(worker, devices) for worker, devices in self._workers if devices[0].kind == GPU]
        if gpus:
            self._first = asyncio.Event()
            self._ask(*gpus[0])
            with suppress(TimeoutError):
                await asyncio.wait_for(self._first.wait(), limit_s)
            self._first = None

    async def run(self) -> None:
        """Measure the devices again and again, until cancelled."""
        self._since_us = monotonic_us()  # no reader could have answered before
        self._workers = workers = self._workers or self._new_workers()
        try:
            while True:
                for worker, devices in workers:
                    if not worker.busy:
                        self._ask(worker, devices)
                self._notice_silence()
                await asyncio.sleep(self.interval_us / 1e6)
        finally:
            for worker, _ in workers:
                worker.stop()

    def _ask(self, worker: ReaderThread, devices: Sequence[DeviceBackend]) -> None:
        now = monotonic_us()
        targets = [
            dataclasses.replace(
                target_of(device), used_bytes=self._granted(device), uses=self._uses.uses(device.id), asked_us=now
            )
            for device in devices
        ]
        worker.ask(targets, self._uses.roots())
        for target in targets:
            self._given_back.discard(target.device)
            if target.used_bytes < self._asked.get(target.device, 0) or self._uses.returning(target.device):
                self._given_back.add(target.device)
            self._asked[target.device] = target.used_bytes
        self._checkpoint_jobs |= {target.device: self._uses.present(target.device) for target in targets}

    def state(self, device: DeviceId) -> WindowState:
        """Return the present state of a device's window of samples."""
        return self._windows[device].state(monotonic_us())

    def recent(self, device: DeviceId) -> list[Sample]:
        """The samples of the window, oldest first."""
        return self._windows[device].recent(monotonic_us())

    def load(self, device: DeviceId) -> Known | None:
        """Return the load that the core was told last; None: none yet."""
        return self._loads.known(device)

    def _new_workers(self) -> list[tuple[ReaderThread, list[DeviceBackend]]]:
        """Make a worker for each kind of device, so that a GPU that hangs does not hold up the host devices."""
        readers: dict[str, Callable[[], Reader]] = {
            "host": lambda: HostReader(monotonic_us),
            GPU: lambda: GpuReader(monotonic_us),
        }
        made = []
        for kind, reader in readers.items():
            devices = [device for device in self._devices.values() if device.kind == kind]
            if devices:
                made.append((ReaderThread(f"telemetry-{kind}", reader, self._arrived), devices))
        return made

    def _arrived(self, found: Found) -> None:
        if self._first is not None:
            self._arrived_first(found)
            self._first.set()
            return
        for device, result in found.items():
            window = self._windows[device]
            if isinstance(result, Sample):
                window.add(result)
                self._note(device, "")
                self._tell_foreign(self._devices[device], result)
                for hear in self._listeners.samples:
                    hear(device, result)
                self._loads.measured(device, window.samples)
                if self._history is not None:
                    self._history.add(device, wall_us(), result)
            else:
                window.fail(str(result))
                self._note(device, str(result))
                tell = self._loads.unavailable if isinstance(result, Unavailable) else self._loads.lost
                tell(device, str(result))

    def _arrived_first(self, found: Found) -> None:
        """Report only memory of processes that are not Carpool's: the rest in use may belong to jobs."""
        for device, result in found.items():
            if isinstance(result, Sample) and result.total_bytes is not None:
                beside = max(0, result.total_bytes - self._devices[device].capacity)
                others = max(0, bytes_of_others(result) - beside)
                self._tell_sizes(device, (others, others, 0))

    def _notice_silence(self) -> None:
        """Report devices that have not answered for long; done here, because the worker may be what does not answer."""
        now, limit = monotonic_us(), STALE_INTERVALS * self.interval_us
        for device, window in self._windows.items():
            latest = window.samples[-1].taken_us if window.samples else self._since_us
            if now - latest > limit and not self._failures.get(device):
                self._loads.lost(device, f"no answer for more than {limit / 1e6:g} s")

    def _note(self, device: DeviceId, failure: str) -> None:
        """Log a failure or a recovery, but only if it is new."""
        before = self._failures.get(device, "")
        self._failures[device] = failure
        if failure and failure != before:
            log.warning("%s cannot be measured: %s", device, failure)
        elif before and not failure:
            log.info("%s is measured again", device)

    def _tell_foreign(self, device: DeviceBackend, sample: Sample) -> None:
        """Report unmanaged memory; the last report stays if the size is unknown or lanes changed meanwhile.

        Memory given back just before the sample may have been in use still: its job's process had to unmap it.
        """
        granted = self._granted(device)
        if device.kind == "host" or sample.free_bytes is None or granted != self._asked[device.id]:
            return
        if device.id in self._given_back:
            return
        known = self._of_guests(device.id, sample)
        if known is None:
            return
        size = device.capacity - granted - known - sample.free_bytes
        others = min(max(0, size), bytes_of_others(sample))
        self._tell_sizes(device.id, (max(0, size), others, max(0, -size)))

    def _tell_sizes(self, device: DeviceId, sizes: tuple[int, int, int]) -> None:
        if sizes != self._foreign.get(device, (0, 0, 0)):
            self._foreign[device] = sizes
            if self._listeners.foreign is not None:
                self._listeners.foreign(device, *sizes)

    def _granted(self, device: DeviceBackend) -> int:
        """Return the managed bytes: those in lanes and banks, and those that jobs have made within their grants."""
        return device.used_bytes() + self._uses.shares(device.id)

    def _of_guests(self, device: DeviceId, sample: Sample) -> int | None:
        """Return the bytes of jobs that allocate for themselves, for which the core keeps the whole device anyway.

        None if they are unknown, because the driver does not report them or such a job has come or left meanwhile.
        """
        checkpoint_jobs = self._uses.present(device)
        if checkpoint_jobs is None or checkpoint_jobs != self._checkpoint_jobs.get(device):
            return None
        jobs = checkpoint_jobs[1]
        return _bytes_of(jobs, sample) if jobs else 0


def _bytes_of(jobs: Container[JobId], sample: Sample) -> int | None:
    """Return the bytes of the jobs' processes; None if the driver does not report all of them."""
    if sample.processes is None:
        return None
    sizes = [process.used_bytes for process in sample.processes if process.owner in jobs]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def target_of(device: DeviceBackend) -> Target:
    """Return the target for a device: its NVML name, if it has one, and what the daemon itself knows of it."""
    return Target(device.id, device.capacity, device.used_bytes(), device.uuid)


def processes_of(jobs: JobTable, shim_of: Callable[[int], int | None]) -> dict[int, int]:
    """Map Carpool's processes to their owners: the daemon, and each job's first process, shim and seated process."""
    roots = {os.getpid(): CARPOOL}
    for job in [job for job in jobs.live.values() if job.pid is not None]:
        pids = (shim_of(job.id), job.pid, None if job.seated is None else job.seated.pid)
        roots |= {pid: job.id for pid in pids if pid is not None}
    return roots


def uses_of(jobs: JobTable, device: DeviceId) -> tuple[JobUse, ...]:
    """Return what the seats of a device's jobs report now."""
    now = monotonic_us()
    return tuple(_use_of(job, now) for job in jobs.live.values() if job.device == device)


def _use_of(job: JobRecord, now: Micros) -> JobUse:
    whole = job.submitted_exclusive or job.recovering or job.alone.since_us is not None
    if job.seated is None:
        return JobUse(job.id, turn_us=now if whole else 0)
    words = job.seated.seat.snapshot()
    moved = words.residue_total + words.out_bytes + words.in_bytes
    return JobUse(job.id, job.lane, job.seated.pid, now if whole else turn_us(words, now), moved)
