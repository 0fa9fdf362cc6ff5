"""The counters of a modelled device, and the load that is reported to the core.

A device is measured once per interval.  Each measurement ("look") sees the jobs that computed there just before: SMACT,
SMOCC and DRAMA are sums over them, at the speed that they had, and at most 1.  The report is CARMA's risk over the last
`WINDOW` looks (`carpool.core.placement.filters.collocation`), in whole percent, and only if it has changed.

A look that would not change the window is left out: a device on which nothing changes costs nothing, however long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from carpool.core.events import DeviceLoad
from carpool.core.model import DeviceId, Load, Micros
from carpool.core.placement.filters.collocation import risk_ppm
from carpool.sim.model.agenda import Driver
from carpool.sim.model.trace_job import WHOLE_PPM

#: Looks that count: 30 s at one per second, as in CARMA's published configuration.
WINDOW = 30
PERCENT_PPM = WHOLE_PPM // 100

Level = tuple[int, int, int]  # SMACT, SMOCC and DRAMA in millionths
IDLE: Level = (0, 0, 0)


class ModelledTelemetry:
    """The telemetry of one device, which was idle for a whole window before the trace begins."""

    def __init__(self, driver: Driver, device: DeviceId, interval_us: Micros) -> None:
        self._driver = driver
        self._device = device
        self._interval = interval_us
        self._level = IDLE
        self._window = deque([IDLE] * WINDOW, WINDOW)
        self._same = WINDOW  # number of the last looks that saw the present level
        self._next: Micros | None = None  # the planned look; None: a look would find nothing new
        self._told = load_of(self._window)

    def begin(self) -> None:
        """Report the first load to the core, so that the device counts as measured."""
        self._driver.post(DeviceLoad(self._device, self._told))

    def change(self, level: Level) -> None:
        """Set the counters from now on.  A look at this very moment still sees the previous values."""
        if level == self._level:
            return
        now = self._driver.now
        if self._next is not None and self._next <= now:
            self._look(self._next)
        self._level, self._same = level, 0
        if self._next is None:
            self._plan((now // self._interval + 1) * self._interval)

    def _plan(self, when: Micros) -> None:
        self._next = when
        self._driver.plan(when, self._due, when)

    def _due(self, when: Micros) -> None:
        if self._next == when:
            self._look(when)

    def _look(self, when: Micros) -> None:
        self._window.append(self._level)
        self._same += 1
        self._tell()
        if self._same < WINDOW:
            self._plan(when + self._interval)
        else:
            self._next = None

    def _tell(self) -> None:
        load = load_of(self._window)
        if load != self._told:
            self._told = load
            self._driver.post(DeviceLoad(self._device, load))


def load_of(window: Sequence[Level]) -> Load:
    """Return the load that is reported for a window, oldest look first."""
    active, occupancy, dram = zip(*window, strict=True)
    return Load(_percent(sum(active) // len(active)), _risk(active), _risk(occupancy), _risk(dram))


@lru_cache(maxsize=1 << 14)  # the same few levels recur
def _risk(values: tuple[int, ...]) -> int:
    return _percent(risk_ppm(values))


def _percent(value_ppm: int) -> int:
    """Round to a whole percent: smaller changes would only wake the core."""
    return (value_ppm + PERCENT_PPM // 2) // PERCENT_PPM * PERCENT_PPM
