"""What to simulate a trace on, and how."""

from __future__ import annotations

from dataclasses import dataclass, field

from carpool.core.model import GIB, Micros, Settings
from carpool.sim.interference import Concurrent, Interference


@dataclass(frozen=True)
class Options:
    """``settings`` are the core's own; `Settings.allocation` decides between whole devices and lanes."""

    devices: int = 1
    settings: Settings = field(default_factory=Settings)
    device_memory: int = 16 * GIB  # bytes per device; matters for lanes only
    interference: Interference = field(default_factory=Concurrent)  # lanes only
    switch_cost_us: Micros = 0  # lost by a job each time it comes back after a preemption
    retries: int = 0  # how often a job that has failed is submitted again
    declare_duration: bool = True  # whether the core is told how long a job takes
    declare_memory: bool = True  # whether the core is told its memory (otherwise it measures)
    record: bool = False  # keep spans and series, for reports


def check_options(options: Options) -> None:
    """Raises ValueError that names the option and what it must be."""
    for name, least in (("devices", 1), ("device_memory", 1), ("switch_cost_us", 0), ("retries", 0)):
        number = getattr(options, name)
        if number < least:
            raise ValueError(f"{name} is {number}; it must be at least {least}")
