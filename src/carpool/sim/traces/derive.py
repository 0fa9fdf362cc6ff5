"""Duration, iterations and their length: values that a trace leaves out follow from the others."""

from __future__ import annotations

from typing import Any

from carpool.sim.traces.numbers import print_decimal

ROUNDING = 1000  # a duration may be shorter than its iterations by one part in this many


def complete(fields: dict[str, Any]) -> None:
    """Fill in ``duration_us``, ``iterations`` and ``iteration_us`` of a job.  Raises ValueError with the reason.

    With all three given, the part of the duration beyond the iterations is start-up on the host.
    """
    duration, count, each = fields.get("duration_us"), fields.get("iterations"), fields.get("iteration_us")
    host = fields.get("host_us", 0)
    if count is not None and each is not None:
        fields["duration_us"] = _duration(duration, count * (each + host))
    elif duration is None:
        raise ValueError("there is neither duration_s nor iterations with iteration_ms; give one of them")
    elif each is not None:
        _count(fields, duration, each, host)
    elif count is not None:
        fields["iteration_us"] = _each(duration, count, host)
    elif host:
        raise ValueError("there is host_ms without iterations; add iterations or iteration_ms, or leave host_ms empty")


def _duration(duration: int | None, busy: int) -> int:
    if duration is None:
        return busy
    if duration + busy // ROUNDING < busy:
        raise ValueError(
            f"duration_s is {print_decimal(duration, 6)}, but the iterations alone take {print_decimal(busy, 6)} s; "
            "make it longer, or leave it empty"
        )
    return max(duration, busy)


def _count(fields: dict[str, Any], duration: int, each: int, host: int) -> None:
    """Set as many whole iterations as there is time for; a job shorter than one is a single, shorter one."""
    if duration < each + host:
        fields["host_us"] = min(host, duration - 1)
        fields["iteration_us"] = duration - fields["host_us"]
    fields["iterations"] = max(1, duration // (each + host))


def _each(duration: int, count: int, host: int) -> int:
    each = duration // count - host
    if each < 1:
        raise ValueError(
            f"duration_s leaves no device time for {count} iterations; make it longer, or give fewer iterations"
        )
    return each
