"""What people choose by name: a policy with its settings, and how lanes slow each other."""

from __future__ import annotations

from typing import Any

from carpool.core.machine import check_settings
from carpool.core.model import Settings
from carpool.core.policies import load_policy
from carpool.plugins import ensure_policy, load_class
from carpool.protocol.policy_names import split_name
from carpool.sim.interference import Checked, Concurrent, Interference, Timeslice

_MODELS: dict[str, type[Interference]] = {kind.name: kind for kind in (Concurrent, Timeslice)}


def own_settings(policy: str) -> tuple[str, ...]:
    """Names of the settings of a policy, beside those of the core.  Raises ValueError for an unknown policy."""
    ensure_policy(policy)
    return load_policy(policy).settings


def always_skips(policy: str) -> bool:
    """Whether a policy takes whatever fits, on whole devices: one that preempts does.  Raises ValueError."""
    ensure_policy(policy)
    return load_policy(policy).preemptive


def check_choice(settings: Settings) -> None:
    """Raises ValueError that says what is wrong with the policy or the settings."""
    ensure_policy(settings.policy)
    check_settings(settings)


def load_interference(name: str) -> Interference:
    """``concurrent``, ``timeslice``, or a class of one's own as ``path.py:Class``.  Raises ValueError."""
    if name in _MODELS:
        return _MODELS[name]()
    origin, attribute = split_name(name)
    if not origin:
        raise ValueError(f"{name!r} is not a way to share; use {', '.join(_MODELS)}, or one of yours, as path.py:Class")
    kind: type[Any] = load_class(origin, attribute)
    try:
        model: Interference = kind()
    except TypeError as error:
        raise ValueError(f"{name!r} cannot be made: {error}; its class must need no arguments") from error
    missing = [part for part in ("name", "speeds") if not hasattr(model, part)]
    if missing:
        raise ValueError(f"{name!r} is not a way to share: it has no {', '.join(missing)}")
    return Checked(model)
