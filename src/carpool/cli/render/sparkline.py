"""Figures of the last minutes in one line."""

from __future__ import annotations

from collections.abc import Sequence

from carpool.protocol.api import TelemetryHistory

#: Quantities that may stand for a device's load; the first one that is measured does.
LOADS = ("sm_active_ppm", "busy_ppm")
LEVELS = " ▁▂▃▄▅▆▇█"
ONE = 1_000_000


def sparkline(values: Sequence[int | None]) -> str:
    """Draw millionths from 0 to one; · where nothing was measured, and a mark for any load above 0.

    >>> sparkline([None, 0, 1, 500_000, 1_000_000])
    '· ▁▄█'
    """
    return "".join("·" if value is None else _level(value) for value in values)


def _level(value: int) -> str:
    step = round(min(ONE, max(0, value)) * (len(LEVELS) - 1) / ONE)
    return LEVELS[max(step, 1 if value > 0 else 0)]


def loads(past: TelemetryHistory, steps: int) -> list[int | None]:
    """Return the load in millionths in the last ``steps`` whole steps of time, oldest first; None: not measured."""
    known = {point.start_us: point.quantities for point in past.points}
    name = next((name for name in LOADS if any(name in each for each in known.values())), None)
    last = past.until_us // past.step_us * past.step_us
    if name is None:
        return []
    spans = (known.get(last - n * past.step_us, {}).get(name) for n in range(steps, 0, -1))
    return [None if span is None else span.mean for span in spans]
