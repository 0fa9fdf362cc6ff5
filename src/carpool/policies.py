"""The imports of a user's policy: base classes, the values that policies see, and keys.

A policy orders jobs (`BasePolicy`), a placement policy orders devices (`BasePlacement`); both are pure functions of a
`View`.  docs/write-a-policy.md explains both, `carpool.policy_check` tests a policy, and the entry-point groups
``carpool.policies`` and ``carpool.placements`` announce policies of installed packages.
"""

from __future__ import annotations

from carpool.core.policies import BasePolicy, Key, Policy, register_policy
from carpool.core.policies.placement import BasePlacement, PlacementPolicy, register_placement
from carpool.core.policies.view import DeviceView, JobView, LaneView, View

__all__ = [
    "BasePlacement",
    "BasePolicy",
    "DeviceView",
    "JobView",
    "Key",
    "LaneView",
    "PlacementPolicy",
    "Policy",
    "View",
    "register_placement",
    "register_policy",
]
