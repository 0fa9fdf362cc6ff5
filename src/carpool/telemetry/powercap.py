"""Energy of the machine's processors, where the kernel counts it (Linux powercap, Intel RAPL; AMD's has the same form).

The counter covers the whole machine, not single devices or jobs.  Since 2020 only root may read it.
"""

from __future__ import annotations

from pathlib import Path

from carpool.core.model import Micros

POWERCAP = Path("/sys/class/powercap")
NO_COUNTER = "this machine has no counter of energy (/sys/class/powercap/intel-rapl)"
SECOND_LOOK = "needs a second look"


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
