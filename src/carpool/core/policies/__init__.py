"""The policies by name: those that come with Carpool, and those that a driver has registered."""

from __future__ import annotations

from carpool.core.policies.base import BasePolicy, Key, Policy
from carpool.core.policies.own import Fair, Fifo, Las, Pack, Sjf, Srsf, Srtf, Tq
from carpool.core.policies.registry import Guarded, Registry

__all__ = [
    "POLICIES",
    "BasePolicy",
    "Key",
    "Policy",
    "available_policies",
    "load_policy",
    "policy_class",
    "register_policy",
]

POLICIES: Registry[Policy] = Registry(
    ("policy", "policies", "known policies"), (Fair, Srtf, Fifo, Las, Pack, Sjf, Srsf, Tq), BasePolicy, Guarded
)
available_policies, load_policy = POLICIES.available, POLICIES.load
policy_class, register_policy = POLICIES.kind, POLICIES.register
