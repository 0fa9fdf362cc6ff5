"""The machine behind host devices, from ``/proc`` and its energy counters.

Energy of the machine's processors, where the kernel counts it (Linux powercap, Intel RAPL; AMD's has the same form).

The counter covers the whole machine, not single devices or jobs.  Since 2020 only root may read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carpool.core.model import Micros
from carpool.telemetry.samples import QUANTITIES, CapabilityLevel, Sample

POWERCAP = Path("/sys/class/powercap")
NO_COUNTER = "this machine has no counter of energy (/sys/class/powercap/intel-rapl)"
SECOND_LOOK = "needs a second measurement"


class Powercap:
    """Sums the energy of the processor packages since the first look.  A counter may wrap around in between."""

    def __init__(self, root: Path = POWERCAP) -> None:
        # Packages have one number (intel-rapl:0); zones below them, such as cores and memory, have a second one.
        self._zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if zone.name.count(":") == 1]
        self._before: tuple[Micros, dict[Path, int]] | None = None
        self._total_uj = 0

    def read(self, now: Micros) -> tuple[dict[str, int], dict[str, str]]:
        """Return ``energy_mj`` and ``power_mw``, and why one of them is missing."""
        try:
            counters = {zone: int((zone / "energy_uj").read_text()) for zone in self._zones}
        except (OSError, ValueError) as error:
            self._before = None
            return {}, _both(f"the counter of energy cannot be read: {getattr(error, 'strerror', None) or error}")
        if not counters:
            return {}, _both(NO_COUNTER)
        before, self._before = self._before, (now, counters)
        if before is None or now <= before[0]:
            return {"energy_mj": self._total_uj // 1000}, {"power_mw": SECOND_LOOK}
        used = sum(self._between(zone, before[1].get(zone, value), value) for zone, value in counters.items())
        self._total_uj += used
        return {"energy_mj": self._total_uj // 1000, "power_mw": used * 1000 // (now - before[0])}, {}

    def _between(self, zone: Path, before: int, now: int) -> int:
        if now >= before:
            return now - before
        try:
            return now - before + int((zone / "max_energy_range_uj").read_text())
        except (OSError, ValueError):
            return now


def _both(why: str) -> dict[str, str]:
    return {"energy_mj": why, "power_mw": why}


PROC = Path("/proc")
IDLE, IOWAIT, ALL = 3, 4, 8  # fields of the line "cpu": two idle times, and the number that do not overlap
GPUS_ONLY = "measured of GPUs only"
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
