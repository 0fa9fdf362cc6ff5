"""The choice of a job's device and co-runners: the queue, filters, candidates, reservations.

May import memory and everything below.  Placement *policies* are in `carpool.core.policies.placement`; users' policies
of version 0.1 import their base from here, new ones import `carpool.policies`.
"""

from __future__ import annotations

from carpool.core.policies.placement import (
    PLACEMENTS,
    BasePlacement,
    Key,
    PlacementPolicy,
    available_placements,
    load_placement,
    register_placement,
)

__all__ = [
    "PLACEMENTS",
    "BasePlacement",
    "Key",
    "PlacementPolicy",
    "available_placements",
    "load_placement",
    "register_placement",
]
