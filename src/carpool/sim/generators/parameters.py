"""Parses ``kind:key=value,...`` into a kind's parameters.

Each kind is a dataclass; its fields are made by `parameter`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from typing import Any

from carpool.core.spelling import did_you_mean

_WHOLE = re.compile(r"[0-9]{1,12}\Z", re.ASCII)
_NUMBER = re.compile(r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,2})?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rule:
    """The values that a parameter may have.  ``parse`` raises ValueError for all others."""

    parse: Callable[[str], Any]
    text: str  # follows "it must be"
    about: str


def count(default: int, about: str, most: int = 10_000_000) -> Any:
    """Make a parameter that is a whole number."""

    def parse(text: str) -> int:
        if not _WHOLE.match(text) or not 1 <= int(text) <= most:
            raise ValueError
        return int(text)

    return _field(default, Rule(parse, f"a whole number from 1 to {most:,}", about))


def number(default: float | None, about: str, *, above: float = 0.0, least: float | None = None,
           most: float = math.inf) -> Any:  # fmt: skip
    """Make a parameter that is any number above ``above``, or from ``least`` on, and up to ``most``."""

    def parse(text: str) -> float:
        value = float(text) if _NUMBER.match(text) else math.nan
        inside = value > above if least is None else value >= least
        if not (inside and value <= most and value < math.inf):
            raise ValueError
        return value

    lower = f"a number greater than {above:g}" if least is None else f"a number of at least {least:g}"
    return _field(default, Rule(parse, lower if most == math.inf else f"{lower} and at most {most:g}", about))


def choice(default: str, about: str, options: tuple[str, ...]) -> Any:
    """Make a parameter that is one of a few words."""

    def parse(text: str) -> str:
        if text not in options:
            raise ValueError
        return text

    return _field(default, Rule(parse, " or ".join(options), about))


def _field(default: Any, rule: Rule) -> Any:
    return field(default=default, metadata={"rule": rule})


def rule_of(parameter: Field[Any]) -> Rule:
    """Return which values a parameter may have, as `count`, `number` or `choice` have noted in the field."""
    rule: Rule = parameter.metadata["rule"]
    return rule


def parse_parameters(kind: str, parameters: type[Any], text: str) -> dict[str, Any]:
    """Parse the given values.  Raises ValueError that names the available keys."""
    known = {each.name: rule_of(each) for each in fields(parameters)}
    values: dict[str, Any] = {}
    for pair in filter(None, text.split(",")):
        key, separator, value = (part.strip() for part in pair.partition("="))
        if key not in known:
            meant = did_you_mean(key, known)
            raise ValueError(f'{kind}: "{key}" is not a parameter; {meant}use one of {", ".join(known)}')
        if key in values:
            raise ValueError(f"{kind}: {key} is given twice; remove one of them")
        values[key] = _value(f"{kind}: {key}", known[key], value if separator else "")
    return values


def _value(name: str, rule: Rule, text: str) -> Any:
    try:
        return rule.parse(text)
    except ValueError:
        raise ValueError(f'{name} is "{text}"; it must be {rule.text}') from None
