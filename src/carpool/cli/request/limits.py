"""Time limits as users type them."""

from __future__ import annotations

import signal

from carpool.protocol.units import parse_time_us

#: The default of Slurm.
USUAL_WARNING_US = 60_000_000


def limit_signal(text: str) -> tuple[int, int]:
    """Parse ``USR1@120``: a signal's number, and how long before the limit, in microseconds (``USR1``: a minute).

    Raises ValueError, for people.

    >>> limit_signal("USR1@120"), limit_signal("SIGINT@2m"), limit_signal("USR2")
    ((10, 120000000), (2, 120000000), (12, 60000000))
    """
    name, at, before = text.partition("@")
    return _number(name), parse_time_us(before) if at else USUAL_WARNING_US


def _number(name: str) -> int:
    try:
        return int(signal.Signals(int(name)) if name.isdecimal() else signal.Signals[f"SIG{name.removeprefix('SIG')}"])
    except (KeyError, ValueError):
        raise ValueError(f"{name!r} is not a signal: write for example USR1@120 (120 s before the limit)") from None
