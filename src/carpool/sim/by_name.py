"""Choices by name: a policy with its settings, and how lanes slow each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from carpool.core.policies import Policy, load_policy
from carpool.core.spelling import did_you_mean
from carpool.plugins import ensure_placement, ensure_policy, load_class
from carpool.protocol.setting_text import split_name
from carpool.sim.model.options import Checked, Concurrent, Interference, Timeslice

__all__ = ["Policy", "load_choices", "load_interference"]

_MODELS: dict[str, type[Interference]] = {kind.name: kind for kind in (Concurrent, Timeslice)}


def load_choices(policies: Sequence[str], placement: str | None = None) -> dict[str, Policy]:
    """Return the policies by name; load users' policies and the placement policy, and register them with the core.

    Raises ValueError for an unknown or a broken one.
    """
    for name in policies:
        ensure_policy(name)
    if placement is not None:
        ensure_placement(placement)
    return {name: load_policy(name) for name in policies}


def load_interference(name: str, loss_ppm: int = 0) -> Interference:
    """Return a model of interference: ``concurrent``, ``timeslice``, or a user's class as ``path.py:Class``.

    ``loss_ppm``: see `Concurrent`; the others have none.  Raises ValueError.
    """
    if loss_ppm and name != Concurrent.name:
        raise ValueError(f"{name} has no loss by interference; only {Concurrent.name} has")
    if name == Concurrent.name:
        return Concurrent(loss_ppm)
    if name in _MODELS:
        return _MODELS[name]()
    origin, attribute = split_name(name)
    if not origin:
        meant = did_you_mean(name, _MODELS)
        known = f"use {', '.join(_MODELS)}, or one of yours, as path.py:Class"
        raise ValueError(f"{name!r} is not a model of slowdown; {meant}{known}")
    kind: type[Any] = load_class(origin, attribute)
    try:
        model: Interference = kind()
    except TypeError as error:
        raise ValueError(f"{name!r} cannot be made: {error}; its class must need no arguments") from error
    missing = [part for part in ("name", "speeds") if not hasattr(model, part)]
    if missing:
        raise ValueError(f"{name!r} is not a model of slowdown: it has no {', '.join(missing)}")
    return Checked(model)
