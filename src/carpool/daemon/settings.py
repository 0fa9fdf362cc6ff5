"""Changing the core's settings by name, for ``--setting`` and PUT /v1/policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from carpool.core.model import Settings
from carpool.core.policies import available_policies

_OPTIONAL = {"max_lanes"}
_NUMBERS = tuple(f.name for f in dataclasses.fields(Settings) if f.name not in ("policy", "extra"))
LARGEST = 10**15  # microseconds: thirty years; keeps sums inside 64 bits


def settings_table(settings: Settings) -> dict[str, int | None]:
    """All numeric settings by name, third-party ones included."""
    return {name: getattr(settings, name) for name in _NUMBERS} | dict(settings.extra)


def changed_settings(settings: Settings, policy: str | None, values: Mapping[str, int | None]) -> Settings:
    """A copy with the changes.  Raises ValueError, for people, for unknown names and impossible values."""
    if policy is not None and policy not in available_policies():
        raise ValueError(f"unknown policy {policy!r}; known policies: {', '.join(available_policies())}")
    for name, value in values.items():
        _check(name, value)
    changes: dict[str, object] = dict(values)
    if policy is not None:
        changes["policy"] = policy
    return dataclasses.replace(settings, **changes)  # type: ignore[arg-type]


def _check(name: str, value: int | None) -> None:
    if name not in _NUMBERS:
        raise ValueError(f"unknown setting {name!r}; known settings: {', '.join(_NUMBERS)}")
    if value is None and name not in _OPTIONAL:
        raise ValueError(f"{name} needs a number")
    smallest = 1 if name in _OPTIONAL or name == "growth_step" else 0
    if value is not None and not smallest <= value <= LARGEST:
        raise ValueError(f"{name}={value} is not between {smallest} and {LARGEST}")
