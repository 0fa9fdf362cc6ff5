"""How likely it is that one more job on a device slows those that are there: CARMA's collocation risk."""

from __future__ import annotations

from collections.abc import Sequence

from carpool.core.model import Load, Settings

#: Weights of mean, median, 95th percentile and exponential average, in tenths (constants of CARMA's published code).
MEAN, MEDIAN, TAIL, RECENT = 2, 3, 3, 2


def risk_ppm(values: Sequence[int]) -> int:
    """0.2 mean + 0.3 median + 0.3 p95 + 0.2 exponential average of a window of one metric, all in millionths.

    ``values``: at least one, oldest first.  The exponential average starts with the oldest and has
    alpha = 2 / (n + 1); percentiles are interpolated linearly.  Rounded down.
    """
    mean = sum(values) // len(values)
    ordered = sorted(values)
    parts = (MEAN * mean, MEDIAN * _quantile(ordered, 50), TAIL * _quantile(ordered, 95), RECENT * _recent(values))
    return sum(parts) // 10


def _quantile(ordered: Sequence[int], percent: int) -> int:
    whole, rest = divmod((len(ordered) - 1) * percent, 100)
    if not rest:
        return ordered[whole]
    return ordered[whole] + (ordered[whole + 1] - ordered[whole]) * rest // 100


def _recent(values: Sequence[int]) -> int:
    size = len(values) + 1
    average = values[0]
    for value in values[1:]:
        average += (value - average) * 2 // size
    return average


def risky(load: Load, settings: Settings) -> str | None:
    """Why a device with this load is closed for collocation, for people; None: it is open.

    Closed where the multiprocessors are nearly always active and, besides, well occupied or the memory is busy.  A
    counter that the device does not have closes nothing.
    """
    if load.risk_active_ppm < settings.risk_active_ppm:
        return None
    for name, value, limit in (
        ("SMOCC", load.risk_occupancy_ppm, settings.risk_occupancy_ppm),
        ("DRAMA", load.risk_dram_ppm, settings.risk_dram_ppm),
    ):
        if value is not None and value >= limit:
            active = _shown("SMACT", load.risk_active_ppm, settings.risk_active_ppm)
            return f"{active} and {_shown(name, value, limit)}"
    return None


def _shown(name: str, value: int, limit: int) -> str:
    return f"risk({name}) {value / 1e6:.2f} >= {limit / 1e6:.2f}"
