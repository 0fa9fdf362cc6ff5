"""The machine behind host devices, from ``/proc`` and its energy counters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carpool.core.model import Micros
from carpool.telemetry.powercap import Powercap
from carpool.telemetry.sample import QUANTITIES, CapabilityLevel, Sample

PROC = Path("/proc")
IDLE, IOWAIT, ALL = 3, 4, 8  # fields of the line "cpu": two idle times, and the number that do not overlap
GPUS_ONLY = "measured of GPUs only"
SECOND_LOOK = "needs a second look"
#: Why host devices lack quantities that GPUs have, where the reason is more specific than `GPUS_ONLY`.
WHY = {
    "busy_ppm": SECOND_LOOK,
    "sm_active_ppm": SECOND_LOOK,
    "sm_occupancy_ppm": SECOND_LOOK,
    "moved_bytes_per_s": SECOND_LOOK,
    "jobs_busy_ppm": SECOND_LOOK,
    "dram_active_ppm": "processors do not say how much of the memory's bandwidth is in use",
    "foreign_bytes": "memory of others is the machine's, not the device's: free_bytes knows of it",
}


def usable_cores() -> int:
    """The number of processors that jobs may use, which are those of the daemon."""
    return len(os.sched_getaffinity(0))


class Host:
    """The machine; measures between two calls of `look` how long its processors were idle."""

    def __init__(self, proc: Path = PROC, powercap: Powercap | None = None) -> None:
        self._proc = proc
        self._powercap = Powercap() if powercap is None else powercap
        self._energy: tuple[Mapping[str, int], Mapping[str, str]] = ({}, {})
        self._before: tuple[int, int] | None = None
        self._busy_ppm: int | None = None
        self._available = 0

    def look(self, now_us: Micros = 0) -> None:
        """Read the counters of the machine, once for all host devices.  Raises OSError."""
        self._energy = self._powercap.read(now_us)
        now = self._times()
        if self._before is not None and now[1] > self._before[1]:
            idle, total = now[0] - self._before[0], now[1] - self._before[1]
            self._busy_ppm = min(1_000_000, max(0, 1_000_000 - idle * 1_000_000 // total))
        self._before = now
        self._available = self._available_bytes()

    def sample(self, taken_us: Micros, capacity: int, used: int, more: Mapping[str, Any] | None = None) -> Sample:
        """Return a sample of a device of ``capacity`` bytes of which ``used`` exist.

        Memory counts as free only if it is also available on the machine.  ``more``: further quantities of this device.
        """
        free = max(0, min(capacity - used, self._available))
        found: dict[str, Any] = {"total_bytes": capacity, "used_bytes": used, "free_bytes": free, **(more or {})}
        energy, why = self._energy
        found |= energy
        if self._busy_ppm is not None:
            found["busy_ppm"] = self._busy_ppm
        missing = {**dict.fromkeys(QUANTITIES, GPUS_ONLY), **WHY, **why}
        missing = {name: text for name, text in missing.items() if name not in found}
        return Sample(taken_us, CapabilityLevel.HOST, **found, missing=missing)

    def _times(self) -> tuple[int, int]:
        """Return the idle time and the total time of all processors together since the machine was started."""
        with open(self._proc / "stat", encoding="ascii") as file:
            times = [int(text) for text in file.readline().split()[1 : 1 + ALL]]
        return times[IDLE] + times[IOWAIT], sum(times)

    def _available_bytes(self) -> int:
        with open(self._proc / "meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
