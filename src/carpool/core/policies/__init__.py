"""The policies that come with Carpool, by name; others are loaded as ``package.module:Class``."""

from __future__ import annotations

from importlib import import_module

from carpool.core.policies.base import Key, Policy
from carpool.core.policies.fair import Fair
from carpool.core.policies.fifo import Fifo
from carpool.core.policies.pack import Pack
from carpool.core.policies.srtf import Srtf

__all__ = ["Key", "Policy", "available_policies", "load_policy"]

_KNOWN: dict[str, type[Policy]] = {kind.name: kind for kind in (Fair, Fifo, Pack, Srtf)}
_PARTS = ("name", "backfill", "settings", "lanes", "admission_key", "turn_key", "switch_after")


def available_policies() -> tuple[str, ...]:
    """Names of the policies that come with Carpool, sorted."""
    return tuple(sorted(_KNOWN))


def load_policy(name: str) -> Policy:
    """Raises ValueError that names the known policies, or says what is wrong with a third-party one."""
    if name in _KNOWN:
        return _KNOWN[name]()
    module, colon, attribute = name.partition(":")
    if not colon:
        known = ", ".join(available_policies())
        raise ValueError(f"unknown policy {name!r}; known policies: {known}, or a class as package.module:Class")
    try:
        policy: Policy = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"cannot load the policy {name!r}: {error}") from error
    missing = [part for part in _PARTS if not hasattr(policy, part)]
    if missing:
        raise ValueError(f"{name!r} is not a policy: it has no {', '.join(missing)}")
    return policy
