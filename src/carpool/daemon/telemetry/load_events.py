"""What the core hears of the devices' load: whole percents, and only what is new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from carpool.core.events import DeviceLoad
from carpool.core.model import DeviceId, Load, Micros
from carpool.core.placement.collocation import risk_ppm
from carpool.telemetry.sample import Sample
from carpool.telemetry.window import mean, values

PERCENT = 10_000
#: Sorting the window costs more than a look at a device: where devices are measured more often, once a second will do.
EVERY_US: Micros = 1_000_000
STAND_IN = "utilization stands in for SMACT"


@dataclass(frozen=True, slots=True)
class Known:
    """``load`` None: not known, and ``why``; otherwise ``why`` says if it is less than it could be."""

    load: Load | None
    why: str = ""


class Loads:
    """``tell`` hears of every change.

    A device that does not answer is told apart from one that has no telemetry: of the latter nothing is said, and what
    was said earlier (a library that hung before it failed) is taken back.
    """

    def __init__(self, tell: Callable[[DeviceLoad], None]) -> None:
        self._tell = tell
        self._known: dict[DeviceId, Known] = {}
        self._taken_us: dict[DeviceId, Micros] = {}

    def known(self, device: DeviceId) -> Known | None:
        return self._known.get(device)

    def measured(self, device: DeviceId, samples: Sequence[Sample]) -> None:
        """``samples``: those of the window, at least one, oldest first."""
        before = self._known.get(device)
        taken = samples[-1].taken_us
        if before is not None and before.load is not None and taken - self._taken_us[device] < EVERY_US:
            return
        known = load_of(samples)
        if known is None:
            self._without(device)
            return
        self._taken_us[device] = taken
        self._now(device, known)

    def lost(self, device: DeviceId, why: str) -> None:
        """There is no measurement that counts (any more)."""
        self._now(device, Known(None, why))

    def unavailable(self, device: DeviceId, why: str) -> None:
        """Nothing like it can be measured here.  If it could be before, that is a loss."""
        if device in self._taken_us:
            self.lost(device, why)
        else:
            self._without(device)

    def _without(self, device: DeviceId) -> None:
        """It answers, or nobody could, but it has no load to tell (yet)."""
        if device not in self._taken_us and self._known.pop(device, None) is not None:
            self._tell(DeviceLoad(device, None))

    def _now(self, device: DeviceId, known: Known) -> None:
        before = self._known.get(device)
        self._known[device] = known
        if before is None or before.load != known.load or (known.load is None and before.why != known.why):
            self._tell(DeviceLoad(device, known.load, "" if known.load is not None else known.why))


def load_of(samples: Sequence[Sample]) -> Known | None:
    """None: there has been one look only, which says nothing about any time."""
    counted = [sample for sample in samples if sample.sm_active_ppm is not None]
    if not counted:
        busy = values(samples, "busy_ppm")
        if samples[-1].level == "host" or not busy:
            return None
        why = f"{STAND_IN}: {samples[-1].reason or samples[-1].missing.get('sm_active_ppm', '')}"
        return Known(Load(_whole(sum(busy) // len(busy)), _whole(risk_ppm(busy))), why)
    active = mean(counted, "sm_active_ppm") or 0
    return Known(
        Load(
            _whole(active),
            _whole(risk_ppm(values(counted, "sm_active_ppm"))),
            _risk(counted, "sm_occupancy_ppm"),
            _risk(counted, "dram_active_ppm"),
        )
    )


def _risk(samples: Sequence[Sample], quantity: str) -> int | None:
    known = values(samples, quantity)
    return _whole(risk_ppm(known)) if known else None


def _whole(ppm: int) -> int:
    """To whole percents."""
    return (ppm + PERCENT // 2) // PERCENT * PERCENT
