"""The policies by name: those that come with Carpool, and those that a driver has registered."""

from __future__ import annotations

from carpool.core.policies.arrival import Fifo, Pack, Tq
from carpool.core.policies.base import BasePolicy, Key, Policy
from carpool.core.policies.fair import Fair
from carpool.core.policies.guard import Guarded
from carpool.core.policies.las import Las
from carpool.core.policies.registry import Registry
from carpool.core.policies.srtf import Sjf, Srsf, Srtf

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
