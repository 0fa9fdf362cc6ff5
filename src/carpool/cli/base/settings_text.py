"""Settings as people write them: ``quantum_us=50ms``, ``growth_step=4MiB``, ``max_lanes=default``."""

from __future__ import annotations

from fractions import Fraction

from carpool.core.model import Serving
from carpool.protocol.units import parse_size, parse_time_us

#: What people may write for a setting that is not set: the policy decides, or the machine.
UNSET = ("default", "none")
BY_NAME = {"policy": "", "placement": "--placement "}
_UNITS = {"us": ", as in 50ms", "ppm": ": 5% is 50000", "step": ", as in 4MiB", "store": ", as in 4GiB"}


def setting(text: str) -> tuple[str, int | None]:
    """One ``name=value``.  Numbers are in the setting's own unit.  Raises ValueError, for people.

    >>> setting("grace_us=20ms"), setting("host_store=4MiB"), setting("max_lanes=default")
    (('grace_us', 20000), ('host_store', 4194304), ('max_lanes', None))
    >>> setting("risk_active_ppm=80%"), setting("serving=fcfs")
    (('risk_active_ppm', 800000), ('serving', 1))
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
    if name in ("policy", "placement"):
        raise ValueError(f"{name} is not a setting with a number; use: carpool policy {BY_NAME[name]}{value}")
    if name == "serving":
        return _serving(value)
    if name.endswith("_ppm") and value.endswith("%"):
        return share_ppm(value)
    if not value[-1].isalpha():  # 0.8 is neither bytes nor microseconds
        raise ValueError(f"{name} is {value!r}; it must be a whole number, or have a unit{_UNITS.get(_kind(name), '')}")
    return parse_time_us(value) if _kind(name) == "us" else parse_size(value)


def _serving(value: str) -> int:
    words = [each.name.lower() for each in Serving]
    if value not in words:
        raise ValueError(f"serving is {value!r}; it must be one of {', '.join(words)}")
    return Serving[value.upper()].value


def _kind(name: str) -> str:
    return name.rpartition("_")[2]


def share_ppm(text: str) -> int:
    """Millionths, from a share or a percentage.  Raises ValueError, for people.

    >>> share_ppm("0.05"), share_ppm("5%")
    (50000, 50000)
    """
    number, percent = (text[:-1], 100) if text.endswith("%") else (text, 1)
    try:
        share = Fraction(number) / percent
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a share, as in 0.05 or 5%") from None
    if not 0 <= share <= 1:
        raise ValueError(f"{text!r} is not between 0 and 1")
    return round(share * 1_000_000)
