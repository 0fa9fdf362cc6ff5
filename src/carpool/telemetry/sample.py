"""The measurements of one device at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from carpool.core.model import JobId, Micros

#: Owner of processes that belong to Carpool itself.
CARPOOL: JobId = 0


class Unmeasurable(Exception):
    """A device could not be measured; the text gives users the reason."""


class Unavailable(Unmeasurable):
    """This machine has no telemetry for devices of this kind; the device itself may be fine."""


class CapabilityLevel(StrEnum):
    """How much is measured."""

    GPM = "gpm"  # a GPU with the counters of its multiprocessors and its memory
    BASIC = "basic"  # a GPU without them
    HOST = "host"  # a host device: figures of the machine's kernel
    NONE = "none"  # nothing is measured at present


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """A process on a device.  ``owner`` is a job, `CARPOOL`, or None for a process that is not Carpool's.

    ``used_bytes``: on a GPU, its memory; on a host device, private memory, which is not part of the device's.
    ``busy_us``: how long the device computed for the process since the previous sample.
    """

    pid: int
    used_bytes: int | None  # None: the driver does not say
    owner: JobId | None = None
    busy_us: Micros | None = None  # None: not measured


@dataclass(frozen=True, slots=True)
class Sample:
    """A quantity is None if it was not measured; ``missing`` says why.  ``*_ppm`` are millionths of the maximum."""

    taken_us: Micros  # the core's clock
    level: CapabilityLevel
    reason: str = ""  # why the level is not a higher one
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    reserved_bytes: int | None = None
    foreign_bytes: int | None = None
    processes: tuple[ProcessMemory, ...] | None = None
    busy_ppm: int | None = None
    memory_busy_ppm: int | None = None
    sm_active_ppm: int | None = None
    sm_occupancy_ppm: int | None = None
    dram_active_ppm: int | None = None
    moved_bytes_per_s: int | None = None
    jobs_busy_ppm: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    energy_mj: int | None = None
    temperature_c: int | None = None
    clock_mhz: int | None = None
    clock_limit_mhz: int | None = None
    throttled: tuple[str, ...] | None = None
    mig: bool | None = None
    mps: bool | None = None
    missing: Mapping[str, str] = field(default_factory=dict)  # quantity: why it was not measured


#: Quantities that a sample may lack.
QUANTITIES = tuple(each.name for each in fields(Sample) if each.default is None)
