"""Settings as users write and read them: ``quantum_us=50ms``, ``growth_step=4MiB``, ``max_lanes=default``.

The setting's name determines what a number means, for the command line and the daemon alike.
"""

from __future__ import annotations

from fractions import Fraction

from carpool.core.model import NUMBER_SETTINGS, Serving
from carpool.core.spelling import did_you_mean
from carpool.protocol.paths import expanded
from carpool.protocol.units import exact_size, exact_time, parse_size, parse_time_us

#: Words for a setting that is not set: the policy decides, or the machine.
UNSET = ("default", "none")
_UNITS = ("_us", "_ppm")
_POLICY_OPTIONS = {"policy": "", "placement": "--placement "}
_SIZES = ("_step", "_bytes", "_store", "margin", "reserve")
#: No setting is that many seconds; such a number without a unit is meant as microseconds.
_LIKELY_US = 1000


def parse_setting(text: str) -> tuple[str, int | None]:
    """Parse one ``name=value`` into the setting's own unit.  Raises ValueError with a text for users.

    >>> parse_setting("grace_us=20ms"), parse_setting("host_store=4MiB"), parse_setting("max_lanes=default")
    (('grace_us', 20000), ('host_store', 4194304), ('max_lanes', None))
    >>> parse_setting("risk_active=80%"), parse_setting("serving=fcfs")
    (('risk_active_ppm', 800000), ('serving', 1))
    """
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not name or not value:
        raise ValueError(f"{text!r} is not NAME=VALUE, as in quantum_us=50ms")
    name = _with_unit(name)
    return name, None if value in UNSET else _value(name, value)


def shown_name(name: str) -> str:
    """Return a setting's name for use beside a value with a unit: without the unit suffix, as users may write it.

    >>> shown_name("risk_dram_ppm"), shown_name("quantum_us"), shown_name("max_jobs"), shown_name("mine_us")
    ('risk_dram', 'quantum', 'max_jobs', 'mine_us')
    """
    return next((name.removesuffix(unit) for unit in _UNITS if name in NUMBER_SETTINGS and name.endswith(unit)), name)


def _with_unit(name: str) -> str:
    return next((name + unit for unit in _UNITS if name + unit in NUMBER_SETTINGS), name)


def setting_text(name: str, value: int | None) -> str:
    """Return a text that `parse_setting` reads as exactly this value."""
    return f"{name}={format_setting(name, value)}"


def format_setting(name: str, value: int | None) -> str:
    """Return the value with its unit, exactly.

    >>> format_setting("grace_us", 20_000), format_setting("risk_active_ppm", 800_000), format_setting("margin", None)
    ('20ms', '80%', 'default')
    """
    if value is None:
        return "default"
    if name.endswith("_us"):
        return exact_time(value)
    if name.endswith("_ppm"):
        return f"{value / 10_000:.4f}".rstrip("0").rstrip(".") + "%"
    if name == "serving":
        return Serving(value).name.lower()
    return exact_size(value) if name.endswith(_SIZES) else str(value)


def _value(name: str, value: str) -> int:
    if name in _POLICY_OPTIONS:
        raise ValueError(f"{name} is not a setting with a number; use: carpool policy {_POLICY_OPTIONS[name]}{value}")
    if value.startswith("-"):
        raise ValueError(f"{name} is {value}: it must be 0 or more")
    if name.endswith("_us"):
        return _time(name, value)
    if name.endswith("_ppm"):
        return _share(name, value)
    if name == "serving":
        return _serving(value)
    return parse_size(value) if name.endswith(_SIZES) else _whole(name, value)


def _time(name: str, value: str) -> int:
    if value.isdecimal() and int(value) >= _LIKELY_US:
        meant = f"did you mean {exact_time(int(value))}?  For seconds: {value}s"
        raise ValueError(f"{name} is {value}, and a number without a unit is seconds: {meant}")
    return parse_time_us(value)


def _share(name: str, value: str) -> int:
    """Return millionths; the plain number 1 is one millionth, and only 100% is all."""
    if value.isdecimal():
        return int(value)
    if not value.endswith("%"):
        raise ValueError(f"{name} is {value!r}; it must be a percentage, as in 5%, or a whole number of millionths")
    return share_ppm(value)


def _serving(value: str) -> int:
    words = [each.name.lower() for each in Serving]
    if value.isdecimal() and int(value) < len(words):
        return int(value)
    if value not in words:
        raise ValueError(f"serving is {value!r}; it must be one of {', '.join(words)}")
    return Serving[value.upper()].value


def _whole(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        meant = "" if name in NUMBER_SETTINGS else did_you_mean(name, NUMBER_SETTINGS)
        raise ValueError(f"{meant}{name} is {value!r}; it must be a whole number") from None


def share_ppm(text: str) -> int:
    """Return millionths, from a share or a percentage.  Raises ValueError with a text for users.

    >>> share_ppm("0.05"), share_ppm("5%")
    (50000, 50000)
    """
    number, percent = (text[:-1], 100) if text.endswith("%") else (text, 1)
    try:
        share = Fraction(number.strip()) / percent
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a share, as in 0.05 or 5%") from None
    if not 0 <= share <= 1:
        raise ValueError(f"{text!r} is not between 0 and 1")
    return round(share * 1_000_000)


def split_name(name: str) -> tuple[str, str]:
    """Return the origin of a policy's class and the name of the class; the origin is empty for a plain name.

    >>> split_name("srtf"), split_name("mine.py:Mine")
    (('', 'srtf'), ('mine.py', 'Mine'))
    """
    origin, _, attribute = name.rpartition(":")
    return origin, attribute


def absolute_name(name: str) -> str:
    """Return the policy's name for a process with another working directory: its path made absolute, without links."""
    origin, attribute = split_name(name)
    return f"{expanded(origin).resolve()}:{attribute}" if origin.endswith(".py") else name
