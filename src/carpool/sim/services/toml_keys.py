"""The keys of tables in the description of services: how the value of each is read, and what is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from carpool.core.model import Micros
from carpool.sim.traces.columns import positive, seconds
from carpool.sim.traces.files import TraceError, quoted
from carpool.sim.traces.numbers import Unfit, decimal, is_zero, mebibytes

Table = Mapping[str, Any]


class ExactNumber(str):
    """A number with a fraction, as it is written."""

    __slots__ = ()


class ServiceKey(NamedTuple):
    """``field``: of what is made of the table."""

    field: str
    parse: Callable[[Any], Any]  # raises Unfit
    rule: str  # follows "it must be"
    is_number: bool = True  # which is parsed as it is written


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | ExactNumber):
        raise Unfit
    return str(value)


def rate(cell: str) -> float:
    """Read a rate, which is not 0.  Raises Unfit."""
    if decimal(cell, 6) == 0 and is_zero(cell):
        raise Unfit
    return float(cell)


def some_mib(cell: str) -> int:
    """Read MiB as bytes, at least one.  Raises Unfit."""
    size = mebibytes(cell)
    if not size:
        raise Unfit
    return size


def model_name(value: Any) -> str:
    """Read a name.  Raises Unfit."""
    if not isinstance(value, str) or isinstance(value, ExactNumber) or not value.strip():
        raise Unfit
    return value


def times(value: Any) -> tuple[Micros, ...]:
    """Read a list of seconds as microseconds, ascending.  Raises Unfit."""
    if not isinstance(value, list):
        raise Unfit
    return tuple(sorted(seconds(_cell(each)) for each in value))


def requests(value: Any) -> tuple[tuple[Micros, int, int], ...]:
    """Read a list of ``[seconds, prompt tokens, tokens]``, in the order of the arrivals.  Raises Unfit."""
    if not isinstance(value, list) or not all(isinstance(each, list) and len(each) == 3 for each in value):
        raise Unfit
    rows = ((seconds(_cell(at)), positive(_cell(prompt)), positive(_cell(tokens))) for at, prompt, tokens in value)
    return tuple(sorted(rows))


def flag(value: Any) -> bool:
    """Read true or false.  Raises Unfit."""
    if not isinstance(value, bool):
        raise Unfit
    return value


def values_of(path: Path, place: str, table: Table, keys: Mapping[str, ServiceKey]) -> dict[str, Any]:
    """Read the values of a table.  Raises TraceError for an unknown key, or a value that breaks its rule."""
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


def _meant(name: str, keys: Mapping[str, ServiceKey]) -> str:
    near = difflib.get_close_matches(name, keys, 1)
    return f"; did you mean {near[0]}?" if near else f"; use {', '.join(keys)}"
