"""The placement policies by name: those that come with Carpool, and those that a driver has registered."""

from __future__ import annotations

from carpool.core.policies.base import Key
from carpool.core.policies.placement.base import BasePlacement, PlacementPolicy
from carpool.core.policies.placement.best_fit import BestFit
from carpool.core.policies.placement.exclusive import Exclusive
from carpool.core.policies.placement.first_fit import FirstFit
from carpool.core.policies.placement.guard import GuardedPlacement
from carpool.core.policies.placement.lug import Lug
from carpool.core.policies.placement.magm import Magm
from carpool.core.policies.placement.round_robin import RoundRobin
from carpool.core.policies.registry import Registry

__all__ = [
    "PLACEMENTS",
    "BasePlacement",
    "Key",
    "PlacementPolicy",
    "available_placements",
    "load_placement",
    "register_placement",
]

PLACEMENTS: Registry[PlacementPolicy] = Registry(
    ("placement policy", "placement policies", "known"),
    (Magm, Exclusive, BestFit, FirstFit, Lug, RoundRobin),
    BasePlacement,
    GuardedPlacement,
)
available_placements, load_placement = PLACEMENTS.available, PLACEMENTS.load
register_placement = PLACEMENTS.register
