"""Reads the description of services from TOML: keys for all, and a ``[[model]]`` for each.

Numbers are converted exactly, as in traces: 0.1 never becomes a binary fraction.  docs/simulator.md lists the keys.
"""

from __future__ import annotations

import difflib
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from carpool.core.model import Micros
from carpool.sim.model.served_models import ServedModel, Services, poisson_us
from carpool.sim.traces.columns import milliseconds, positive, seconds, some_milliseconds, some_seconds
from carpool.sim.traces.files import TraceError, open_text, quoted, readable
from carpool.sim.traces.numbers import Unfit, decimal, is_zero, mebibytes, whole

Table = Mapping[str, Any]
MODEL = "model"
#: More requests are considered a mistake: a simulated request costs some 0.1 ms.
MOST_REQUESTS = 10_000_000


class _Literal(str):
    """A number with a fraction, as it is written."""

    __slots__ = ()


class _Key(NamedTuple):
    field: str
    parse: Callable[[Any], Any]  # raises Unfit
    rule: str  # follows "it must be"
    is_number: bool = True  # which is parsed as it is written


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | _Literal):
        raise Unfit
    return str(value)


def _rate(cell: str) -> float:
    if decimal(cell, 6) == 0 and is_zero(cell):
        raise Unfit
    return float(cell)


def _some_mib(cell: str) -> int:
    size = mebibytes(cell)
    if not size:
        raise Unfit
    return size


def _name(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, _Literal) or not value.strip():
        raise Unfit
    return value


def _times(value: Any) -> tuple[Micros, ...]:
    if not isinstance(value, list):
        raise Unfit
    return tuple(sorted(seconds(_cell(each)) for each in value))


_MS, _SOME_MS = "a number of milliseconds, 0 or more", "a number of milliseconds greater than 0"
_COUNT, _WHOLE = "a whole number of at least 1", "a whole number, 0 or more"
_MIB = "a number of MiB, 0 or more"

COMMON = {
    "workers": _Key("workers", positive, _COUNT),
    "activations_mib": _Key("activations", mebibytes, _MIB),
    "owner": _Key("owner", whole, _WHOLE),
    "group_mib": _Key("group", _some_mib, "a number of MiB greater than 0"),
    "transfer_ms": _Key("transfer_us", milliseconds, _MS),
}
POISSON = {
    "seconds": _Key("seconds", some_seconds, "a number of seconds greater than 0"),
    "seed": _Key("seed", whole, _WHOLE),
}
OF_MODEL = {
    "name": _Key("name", _name, "a name", is_number=False),
    "weights_mib": _Key("weights", mebibytes, _MIB),
    "compute_ms": _Key("compute_us", some_milliseconds, _SOME_MS),
    "further_ms": _Key("further_us", milliseconds, _MS),
    "deadline_ms": _Key("deadline_us", some_milliseconds, _SOME_MS),
    "max_batch": _Key("max_batch", positive, _COUNT),
    "max_delay_ms": _Key("max_delay_us", milliseconds, _MS),
    "max_queue": _Key("max_queue", positive, _COUNT),
    "priority": _Key("priority", whole, _WHOLE),
}
ARRIVALS = {
    "rate": _Key("rate", _rate, "requests per second, greater than 0"),
    "arrivals_s": _Key("arrivals_us", _times, "a list of numbers of seconds", is_number=False),
}
REQUIRED = ("name", "weights_mib", "compute_ms")


def read_services(path: Path) -> Services:
    """Read a description.  Raises TraceError for the first error in the file."""
    with readable(path), open_text(path) as file:
        text = file.read()
    try:
        table = tomllib.loads(text, parse_float=_Literal)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, endlessly nested tables
        raise TraceError.at(path, "", f"this is not TOML: {error}") from None
    models = table.pop(MODEL, None)
    if not isinstance(models, list) or not models or not all(isinstance(each, dict) for each in models):
        raise TraceError.at(path, "", "there are no models; write a [[model]] for each")
    values = _values(path, "", table, COMMON | POISSON)
    poisson = values.pop("seconds", None), values.pop("seed", 0)
    made = [_model(path, number, each, *poisson) for number, each in enumerate(models, 1)]
    _check(path, made)
    return Services(tuple(made), **values)


def _check(path: Path, made: list[ServedModel]) -> None:
    name, times = Counter(model.name for model in made).most_common(1)[0]
    if times > 1:
        raise TraceError.at(path, "", f"two models have the name {quoted(name)}; give each its own")
    if sum(len(model.arrivals_us) for model in made) > MOST_REQUESTS:
        raise TraceError.at(path, "", f"these are more than {MOST_REQUESTS:,} requests; lower the rates or the seconds")


def _values(path: Path, place: str, table: Table, keys: Mapping[str, _Key]) -> dict[str, Any]:
    values = {}
    for name, value in table.items():
        key = keys.get(name)
        if key is None:
            raise TraceError.at(path, place, f"unknown key {quoted(name)}{_meant(name, keys)}")
        try:
            values[key.field] = key.parse(_cell(value) if key.is_number else value)
        except Unfit as why:
            more = f" ({why})" if str(why) else ""
            raise TraceError.at(path, place, f"{name} is {quoted(value)}{more}; it must be {key.rule}") from None
    return values


def _meant(name: str, keys: Mapping[str, _Key]) -> str:
    near = difflib.get_close_matches(name, keys, 1)
    return f"; did you mean {near[0]}?" if near else f"; use {', '.join(keys)}"


def _model(path: Path, number: int, table: Table, until_us: Micros | None, seed: int) -> ServedModel:
    place = f"model {number}"
    values = _values(path, place, table, OF_MODEL | ARRIVALS)
    missing = [name for name in REQUIRED if name not in table]
    if missing:
        raise TraceError.at(path, place, f"{', '.join(missing)} is missing")
    if ("rate" in table) == ("arrivals_s" in table):
        raise TraceError.at(path, place, "say either rate or arrivals_s")
    rate = values.pop("rate", None)
    if rate is None:
        return ServedModel(**values)
    if until_us is None:
        raise TraceError.at(path, place, 'rate needs "seconds" at the top: for so long requests arrive')
    if rate * until_us > MOST_REQUESTS * 1_000_000:
        raise TraceError.at(path, place, f"these are more than {MOST_REQUESTS:,} requests; lower rate or seconds")
    return ServedModel(**values, arrivals_us=poisson_us(rate, until_us, seed * 1_000_003 + number))
