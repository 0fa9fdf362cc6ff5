"""Placement policies, which order devices for a job: Carpool's own, their interface, and the guard around users' own.

A placement policy is a small object without state.  The names under which they are known are at the end.
"""

from __future__ import annotations

from typing import Protocol

from carpool.core.policies.base import Key
from carpool.core.policies.registry import CallLimit, Registry, Watched, is_key, unlimited
from carpool.core.policies.view import DeviceView, JobView, View

__all__ = [
    "PLACEMENTS",
    "BasePlacement",
    "Key",
    "PlacementPolicy",
    "available_placements",
    "load_placement",
    "register_placement",
]


class PlacementPolicy(Protocol):
    """One signature for every placement policy; `BasePlacement` has defaults for all of it.

    The machine has the last word.  Devices without jobs come first, those that do not meet the conditions of joining
    others come last (or are closed, see `Settings.placement_strict`), and among the rest the policy decides.
    """

    name: str
    #: Whether jobs may be placed beside others at all.
    collocates: bool
    #: Whether the key depends on the device alone, not on the job: then it is asked again only after a change there.
    by_device: bool
    #: Names it understands in ``Settings.extra``.
    settings: tuple[str, ...]

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        """The order in which devices are tried for a job: smaller comes first.

        It may depend on the job, the device and ``view.settings`` only.  Ties go to the device with fewer jobs
        that are warming up, then to the one that was added first.
        """


class BasePlacement:
    """Devices in the order in which they were added, shared: override what differs."""

    name = "base"
    collocates = True
    by_device = False
    settings: tuple[str, ...] = ()

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        """Return the position of the device."""
        return (device.position,)


class BestFit(BasePlacement):
    """Least free memory first: devices where the job does not fit refuse it, so the tightest one takes it."""

    name = "best-fit"
    by_device = True

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        """Return the free memory."""
        return (device.free,)


class Exclusive(BasePlacement):
    """Only devices without any job are open."""

    name = "exclusive"
    by_device = True
    collocates = False


class FirstFit(BasePlacement):
    """The order in which devices were added: early ones are filled before late ones are used by several jobs."""

    name = "first-fit"
    by_device = True


BUSY_PPM = 1_000_000


class Lug(BasePlacement):
    """Least active multiprocessors first (`Load.active_ppm`); among equals most free memory.

    A device of unknown load counts as fully active while jobs are there.
    """

    name = "lug"
    by_device = True

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        """Return the activity, then most free memory."""
        if device.load is not None:
            return (device.load.active_ppm, -device.free)
        return (BUSY_PPM if device.jobs else 0, -device.free)


class Magm(BasePlacement):
    """Most free memory first; among equals the device with fewest jobs."""

    name = "magm"
    by_device = True

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        """Return most free memory first, then the number of jobs."""
        return (-device.free, len(device.jobs))


class RoundRobin(BasePlacement):
    """The device whose last placement is longest ago."""

    name = "round-robin"
    by_device = True

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        """Return the number of the last placement there."""
        return (device.last_placed,)


class GuardedPlacement(Watched[PlacementPolicy]):
    """Asks ``policy``, and answers as `Magm` would where the answer is an error or nonsense."""

    def __init__(self, policy: PlacementPolicy, limit: CallLimit = unlimited) -> None:
        super().__init__(policy, limit)
        self._fallback = Magm()
        self.collocates = bool(policy.collocates)
        self.by_device = bool(getattr(policy, "by_device", False))

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        """Return the policy's checked answer."""
        own = self._fallback.device_key(view, job, device)
        return self._checked(lambda: self._policy.device_key(view, job, device), is_key, "device_key", own)


PLACEMENTS: Registry[PlacementPolicy] = Registry(
    ("placement policy", "placement policies", "known"),
    (Magm, Exclusive, BestFit, FirstFit, Lug, RoundRobin),
    BasePlacement,
    GuardedPlacement,
)
available_placements, load_placement = PLACEMENTS.available, PLACEMENTS.load
register_placement = PLACEMENTS.register
