"""Settings as people write them: ``quantum_us=50ms``, ``growth_step=4MiB``, ``max_lanes=none``."""

from __future__ import annotations

from carpool.protocol.sizes import parse_size, parse_time_us


def setting(text: str) -> tuple[str, int | None]:
    """One ``name=value``.  Numbers are in the setting's own unit.  Raises ValueError, for people.

    >>> setting("grace_us=20ms"), setting("growth_step=4MiB"), setting("max_lanes=none")
    (('grace_us', 20000), ('growth_step', 4194304), ('max_lanes', None))
    """
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(f"{text!r} is not NAME=VALUE, as in quantum_us=50ms")
    return name, _value(name, value)


def _value(name: str, value: str) -> int | None:
    if value == "none":
        return None
    if value.removeprefix("-").isdecimal():
        return int(value)
    return parse_time_us(value) if name.endswith("_us") else parse_size(value)
