"""The devices' load as reported to the core: whole percents, and only changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from carpool.core.events import DeviceLoad
from carpool.core.model import DeviceId, Load, Micros
from carpool.core.placement.filters.collocation import risk_ppm
from carpool.telemetry.samples import Sample, mean, values

PERCENT = 10_000
#: Sorting the window costs more than a look at a device, so load is computed at most once a second.
EVERY_US: Micros = 1_000_000
STAND_IN = "utilization stands in for SMACT"


@dataclass(frozen=True, slots=True)
class Known:
    """The load of a device.  ``load`` None: not known, and ``why``; otherwise ``why`` says what is missing in it."""

    load: Load | None
    why: str = ""


class Loads:
    """Reports every change of a device's load to ``tell``.

    A device that does not answer is distinguished from one without telemetry: nothing is reported about the latter, and
    an earlier report (a library that hung before it failed) is withdrawn.
    """

    def __init__(self, tell: Callable[[DeviceLoad], None]) -> None:
        self._tell = tell
        self._known: dict[DeviceId, Known] = {}
        self._taken_us: dict[DeviceId, Micros] = {}

    def known(self, device: DeviceId) -> Known | None:
        """Return what is known of a device's load; None: nothing."""
        return self._known.get(device)

    def measured(self, device: DeviceId, samples: Sequence[Sample]) -> None:
        """Take in new samples.  ``samples``: those of the window, at least one, oldest first."""
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
        """Report that a device has no valid measurement at present."""
        self._now(device, Known(None, why))

    def unavailable(self, device: DeviceId, why: str) -> None:
        """Record that the load cannot be measured here.  If it could be measured before, report the loss."""
        if device in self._taken_us:
            self.lost(device, why)
        else:
            self._without(device)

    def _without(self, device: DeviceId) -> None:
        """Withdraw what was reported about a device that has no load to report (yet)."""
        if device not in self._taken_us and self._known.pop(device, None) is not None:
            self._tell(DeviceLoad(device, None))

    def _now(self, device: DeviceId, known: Known) -> None:
        before = self._known.get(device)
        self._known[device] = known
        if before is None or before.load != known.load or (known.load is None and before.why != known.why):
            self._tell(DeviceLoad(device, known.load, "" if known.load is not None else known.why))


def load_of(samples: Sequence[Sample]) -> Known | None:
    """Return the load over a window of samples; None after a single look, which covers no stretch of time."""
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
    """Round to whole percents."""
    return (ppm + PERCENT // 2) // PERCENT * PERCENT
