"""Options of a simulation.

How jobs that compute on one device at the same time slow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from carpool.core.model import GIB, Allocation, Micros, Oversubscribe, Settings
from carpool.core.policies import load_policy
from carpool.core.state.settings_check import check_settings
from carpool.sim.model.cores import Cores, check_cores
from carpool.sim.model.served_models import Services, check_services
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob


class Interference(Protocol):
    """A replaceable model: any class with a name and this method."""

    name: str

    def speeds(self, jobs: Sequence[TraceJob]) -> Sequence[int]:
        """Return each job's speed in parts per million of its speed alone, for all jobs that compute on the device."""


class Concurrent:
    """Lanes compute at the same time (MPS; the host device): no job is slowed until the device is full.

    speed = min(1, 1 / sum of utilizations) / (1 + loss * (jobs - 1)): kernels share the device in proportion to what
    they would use alone; in addition, each further job slows every job by ``loss_ppm`` (caches, memory bandwidth).
    """

    name = "concurrent"

    def __init__(self, loss_ppm: int = 0) -> None:
        self._loss_ppm = loss_ppm

    def speeds(self, jobs: Sequence[TraceJob]) -> Sequence[int]:
        """Return the same speed for all."""
        total = sum(job.demand_ppm for job in jobs)
        speed = min(WHOLE_PPM, WHOLE_PPM * WHOLE_PPM // max(total, 1))
        slowed = speed * WHOLE_PPM // (WHOLE_PPM + self._loss_ppm * max(0, len(jobs) - 1))
        return [max(1, slowed)] * len(jobs)


class Timeslice:
    """The driver gives whole slices of the device in turn (CUDA contexts without MPS): n lanes get 1/n each."""

    name = "timeslice"

    def speeds(self, jobs: Sequence[TraceJob]) -> Sequence[int]:
        """Return an equal share for each."""
        return [WHOLE_PPM // max(len(jobs), 1)] * len(jobs)


class OnCores:
    """Beside a modelled machine: jobs that compute on its cores, which slow them, are no load of their device."""

    def __init__(self, model: Interference) -> None:
        self.name = model.name
        self._model = model

    def speeds(self, jobs: Sequence[TraceJob]) -> Sequence[int]:
        """Return the model's speeds for the other jobs."""
        others = [job for job in jobs if not job.cores_ppm]
        speeds = iter(self._model.speeds(others) if others else ())
        return [WHOLE_PPM if job.cores_ppm else next(speeds) for job in jobs]


class Checked:
    """A user's model: its answer must be a speed for each job.  Raises ValueError that names the class."""

    def __init__(self, model: Interference) -> None:
        self.name = model.name
        self._model = model

    def speeds(self, jobs: Sequence[TraceJob]) -> Sequence[int]:
        """Return the model's answer.  Raises ValueError if it is none."""
        try:
            speeds: Any = self._model.speeds(jobs)
        except Exception as error:
            raise ValueError(f"{self._who()} failed: {type(error).__name__}: {error}") from error
        if not isinstance(speeds, Sequence) or len(speeds) != len(jobs):
            raise ValueError(
                f"{self._who()} returned {speeds!r}; it must return one speed for each of {len(jobs)} jobs"
            )
        for speed in speeds:
            if not isinstance(speed, int) or not 1 <= speed <= WHOLE_PPM:
                raise ValueError(
                    f"{self._who()} returned {speed!r}; a speed is a whole number of millionths, 1 to 1000000"
                )
        return speeds

    def _who(self) -> str:
        return f"{type(self._model).__name__}.speeds"


#: 6 GB/s.
COPY_BYTES_PER_US = 6000


@dataclass(frozen=True)
class Options:
    """``settings`` are the core's own; `Settings.allocation` decides between whole devices and lanes."""

    devices: int = 1
    settings: Settings = field(default_factory=Settings)
    device_memory: int = 16 * GIB  # bytes per device; matters for lanes only
    interference: Interference = field(default_factory=Concurrent)  # lanes only
    resolution_us: Micros = 0  # lanes: shortest time between two hand-overs that is modelled; 0: as they would happen
    switch_cost_us: Micros | None = None  # time a job loses each time it comes back after a preemption; None: its own
    retries: int = 0  # how often a job that has failed is submitted again
    declare_duration: bool = True  # whether the core is told how long a job takes
    declare_memory: bool = True  # whether the core is told its memory (otherwise it measures)
    record: bool = False  # keep spans and series, for reports
    oversubscribe: Oversubscribe = Oversubscribe.AUTO  # of every device; lanes only
    offload_bytes_per_us: int = COPY_BYTES_PER_US  # rate of offloading to the host store; 0: in no time
    restore_bytes_per_us: int = COPY_BYTES_PER_US  # rate of restoring; 0: in no time
    telemetry_us: Micros = 0  # how often devices are measured, for `DeviceLoad`; 0: never; lanes only
    estimator: str = ""  # of `TraceJob.estimates`: what the core is told of memory; "": what the job really needs
    warmup_us: Micros = 0  # how long a job works until it needs all of its memory; lanes only
    warmup_share_ppm: int = WHOLE_PPM  # until then it needs this share of it
    services: Services | None = None  # beside the trace; lanes only
    cores: Cores | None = None  # of the machine; None: work on a host is never slowed; lanes only
    host_devices: bool = False  # all jobs compute on the cores, also those of which the trace does not say so
    devices_per_host: int | None = None  # machines with so many of the devices each; None: all are in one

    def switch_us(self, job: TraceJob) -> Micros:
        """Return the time that a job loses each time it comes back."""
        return job.switch_us if self.switch_cost_us is None else self.switch_cost_us


def check_options(options: Options) -> None:
    """Check the options.  Raises ValueError that names the option and its rule, or the error in the settings."""
    for name, least in (
        ("devices", 1),
        ("device_memory", 1),
        ("switch_cost_us", 0),
        ("resolution_us", 0),
        ("retries", 0),
        ("offload_bytes_per_us", 0),
        ("restore_bytes_per_us", 0),
        ("telemetry_us", 0),
        ("warmup_us", 0),
        ("devices_per_host", 1),
    ):
        number = getattr(options, name)
        if number is not None and number < least:
            raise ValueError(f"{name} is {number}; it must be at least {least}")
    if not 0 < options.warmup_share_ppm <= WHOLE_PPM:
        raise ValueError(f"warmup_share_ppm is {options.warmup_share_ppm}; it must be 1 to {WHOLE_PPM}")
    check_settings(options.settings)
    if options.cores is not None:
        if options.settings.allocation is Allocation.DEVICES:
            raise ValueError("cores of a machine are modelled for jobs in lanes, not on whole devices")
        check_cores(options.cores)
    if options.services is not None:
        if options.settings.allocation is Allocation.DEVICES:
            raise ValueError("services share devices in lanes, not as whole devices")
        check_services(options.services, options.device_memory)


#: Default interval at which a live daemon measures its devices.
TELEMETRY_US = 1_000_000


def suggested_telemetry_us(settings: Settings, devices: int) -> Micros:
    """Return a live daemon's interval if telemetry decides anything, else 0.

    Telemetry decides between several devices, and with `placement_strict` also on a single one.
    """
    if settings.allocation is Allocation.DEVICES:
        return 0
    return TELEMETRY_US if devices > 1 or settings.placement_strict else 0


#: Hand-overs per job that `suggested_resolution_us` leaves, for a job of mean length.
TURNS_PER_JOB = 4


def suggested_resolution_us(jobs: Sequence[TraceJob], settings: Settings) -> Micros:
    """Return a resolution with which a long trace in lanes takes seconds instead of hours; 0 if it changes nothing."""
    if settings.allocation is Allocation.DEVICES or not jobs:
        return 0
    resolution = sum(job.duration_us for job in jobs) // len(jobs) // TURNS_PER_JOB
    return resolution if resolution > usual_quantum_us(settings) else 0


def core_settings(options: Options) -> Settings:
    """Return the core's settings: a coarse resolution lengthens turns, and the core's patience by as much."""
    settings, resolution = options.settings, options.resolution_us
    return replace(
        settings,
        quantum_us=max(usual_quantum_us(settings), resolution) if resolution else settings.quantum_us,
        forced_after_us=settings.forced_after_us + 2 * resolution,
    )


def usual_quantum_us(settings: Settings) -> Micros:
    """Return the time quantum that follows from the settings."""
    return load_policy(settings.policy).quantum_us if settings.quantum_us is None else settings.quantum_us
