"""The machine behind host devices, from ``/proc``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from carpool.core.model import Micros
from carpool.monitor.sample import QUANTITIES, Level, Sample

PROC = Path("/proc")
IDLE, IOWAIT, ALL = 3, 4, 8  # fields of the line "cpu": which are idle time, and how many do not overlap
GPUS_ONLY = "measured of GPUs only"


class Host:
    """Between two calls of `sample` it notes how long the processors were idle."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._before: tuple[int, int] | None = None
        self._busy_ppm: int | None = None
        self._available = 0

    def look(self) -> None:
        """Once for all host devices.  Raises OSError."""
        now = self._times()
        if self._before is not None and now[1] > self._before[1]:
            idle, total = now[0] - self._before[0], now[1] - self._before[1]
            self._busy_ppm = min(1_000_000, max(0, 1_000_000 - idle * 1_000_000 // total))
        self._before = now
        self._available = self._available_bytes()

    def sample(self, taken_us: Micros, capacity: int, used: int) -> Sample:
        """Of a device of ``capacity`` bytes of which ``used`` exist.  What is free is also free on the machine."""
        free = max(0, min(capacity - used, self._available))
        found: dict[str, Any] = {"total_bytes": capacity, "used_bytes": used, "free_bytes": free}
        missing = dict.fromkeys(QUANTITIES, GPUS_ONLY) | {"busy_ppm": "needs a second look"}
        if self._busy_ppm is not None:
            found["busy_ppm"] = self._busy_ppm
        missing = {name: why for name, why in missing.items() if name not in found}
        return Sample(taken_us, Level.HOST, **found, missing=missing)

    def _times(self) -> tuple[int, int]:
        """Idle time, and all time, of all processors together since the machine was started."""
        with open(self._proc / "stat", encoding="ascii") as file:
            times = [int(text) for text in file.readline().split()[1 : 1 + ALL]]
        return times[IDLE] + times[IOWAIT], sum(times)

    def _available_bytes(self) -> int:
        with open(self._proc / "meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
