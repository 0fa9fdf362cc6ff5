"""The policies by name: those that come with Carpool, and those that a driver has registered."""

from __future__ import annotations

from collections.abc import Iterable

from carpool.core.policies.base import BasePolicy, Key, Policy
from carpool.core.policies.fair import Fair
from carpool.core.policies.fifo import Fifo
from carpool.core.policies.guard import Guarded
from carpool.core.policies.las import Las
from carpool.core.policies.pack import Pack
from carpool.core.policies.sjf import Sjf
from carpool.core.policies.srtf import Srsf, Srtf
from carpool.core.policies.tq import Tq

__all__ = [
    "BasePolicy",
    "Key",
    "Policy",
    "available_policies",
    "is_registered",
    "load_policy",
    "policy_class",
    "register_policy",
]

_OWN: dict[str, type[Policy]] = {kind.name: kind for kind in (Fair, Fifo, Las, Pack, Sjf, Srsf, Srtf, Tq)}
_REGISTERED: dict[str, type[Policy]] = {}
_TRUSTED: set[str] = set()  # of these, whose errors are to be seen
_PARTS = (
    *("name", "backfill", "settings", "preemptive", "requeue", "quantum_us"),
    *("lanes", "admission_key", "turn_key", "switch_after", "victim_key", "next_change"),
)


def available_policies() -> tuple[str, ...]:
    """Names of the policies that come with Carpool, sorted."""
    return tuple(sorted(_OWN))


def load_policy(name: str) -> Policy:
    """Raises ValueError that names the known policies.  Files and packages are the business of `carpool.plugins`."""
    if name in _OWN:
        return _OWN[name]()
    if name not in _REGISTERED:
        known = ", ".join((*available_policies(), *sorted(_REGISTERED)))
        raise ValueError(f"unknown policy {name!r}; known policies: {known}; or one of yours, as path.py:Class")
    policy = _REGISTERED[name]()
    return policy if name in _TRUSTED else Guarded(policy)


def _are_names(settings: object) -> bool:
    return isinstance(settings, Iterable) and all(isinstance(each, str) for each in settings)


def is_registered(name: str) -> bool:
    return name in _REGISTERED


def policy_class(name: str) -> type[Policy]:
    """The class behind a name that `load_policy` knows.  Raises KeyError."""
    return _OWN.get(name) or _REGISTERED[name]


def register_policy(name: str, kind: type[Policy], *, guarded: bool = True) -> None:
    """Make a policy known under a name; not ``guarded``: its errors are the caller's business.

    Raises ValueError for a name that Carpool uses itself, and for a class that is no policy.
    """
    if name in _OWN:
        raise ValueError(f"{name!r} is one of Carpool's own policies; give yours another name")
    try:
        policy = kind()
    except Exception as error:
        raise ValueError(f"{name!r} is not a policy: making one fails: {error}") from error
    missing = [part for part in _PARTS if not hasattr(policy, part)]
    if missing:
        raise ValueError(f"{name!r} is not a policy: it has no {', '.join(missing)}; derive it from BasePolicy")
    if not _are_names(policy.settings):
        raise ValueError(f"{name!r} is not a policy: its settings are {policy.settings!r}, not a tuple of names")
    _REGISTERED[name] = kind
    (_TRUSTED.discard if guarded else _TRUSTED.add)(name)
