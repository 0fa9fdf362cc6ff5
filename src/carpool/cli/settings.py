"""Settings as people write them: ``quantum_us=50ms``, ``growth_step=4MiB``, ``max_lanes=default``."""

from __future__ import annotations

from carpool.protocol.sizes import parse_size, parse_time_us

#: What people may write for a setting that is not set: the policy decides, or the machine.
UNSET = ("default", "none")


def setting(text: str) -> tuple[str, int | None]:
    """One ``name=value``.  Numbers are in the setting's own unit.  Raises ValueError, for people.

    >>> setting("grace_us=20ms"), setting("host_store=4MiB"), setting("max_lanes=default")
    (('grace_us', 20000), ('host_store', 4194304), ('max_lanes', None))
    """
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(f"{text!r} is not NAME=VALUE, as in quantum_us=50ms")
    return name, _value(name, value)


def _value(name: str, value: str) -> int | None:
    if value in UNSET:
        return None
    if value.removeprefix("-").isdecimal():
        return int(value)
    return parse_time_us(value) if name.endswith("_us") else parse_size(value)
