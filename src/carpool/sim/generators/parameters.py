"""Parses ``kind:key=value,...`` into a kind's parameters.

Each kind is a dataclass; its fields are made by `parameter`.

The measured workloads of ``src/carpool/sim/data`` as makers of jobs.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any

from carpool.core.spelling import did_you_mean
from carpool.sim.model.trace_job import ASSUMED_ITERATION_US, WHOLE_PPM, TraceJob

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


def has_parameter(parameters: type[Any], name: str) -> bool:
    """Whether a kind has a parameter of that name."""
    return name in {each.name for each in fields(parameters)}


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


@dataclass(frozen=True, slots=True)
class Workload:
    """A model with a batch size; times are microseconds, sizes bytes."""

    name: str  # as in "resnet50_50"
    iteration_us: int
    persistent: int
    ephemeral: int

    def job(self, number: int, submit_us: int, length_us: float, utilization: float, gpus: int = 1) -> TraceJob:
        """Make a job of whole iterations, as close to ``length_us`` as possible, and at least one.

        The job has no start-up and no host time.
        """
        iterations = max(1, round(length_us / self.iteration_us))
        return TraceJob(
            id=f"{number}-{self.name}",
            submit_us=submit_us,
            duration_us=iterations * self.iteration_us,
            gpus=gpus,
            iterations=iterations,
            iteration_us=self.iteration_us,
            persistent=self.persistent,
            ephemeral=self.ephemeral,
            utilization_ppm=millionths(utilization),
            model=self.name,
        )


def millionths(share: float) -> int:
    """Return a share from 0 to 1 in parts per million, at least one: every job uses its device a little."""
    return max(1, round(share * WHOLE_PPM))


@cache
def training() -> tuple[Workload, ...]:
    """Return Salus's training workloads, with measured iterations."""
    return _load("salus_training.csv")


@cache
def inference() -> tuple[Workload, ...]:
    """Return the inference workloads; their iterations have no measured time, which the caller sets."""
    return _load("salus_inference.csv")


def workload(name: str) -> Workload:
    """Return a training workload by its name."""
    return next(each for each in training() if each.name == name)


def _load(name: str) -> tuple[Workload, ...]:
    text = resources.files("carpool.sim").joinpath("data", name).read_text(encoding="utf-8")
    return tuple(
        Workload(
            name=f"{row['model']}_{row['batch_size']}",
            iteration_us=round(float(row.get("iteration_ms") or 0) * 1000) or ASSUMED_ITERATION_US,
            persistent=_bytes(row["persistent_mib"]),
            ephemeral=_bytes(row["ephemeral_mib"]),
        )
        for row in csv.DictReader(text.splitlines())
    )


def _bytes(mebibytes: str) -> int:
    return round(float(mebibytes) * (1 << 20))
