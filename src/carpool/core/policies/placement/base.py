"""The interface of a placement policy: a small object without state that orders devices for a job."""

from __future__ import annotations

from typing import Protocol

from carpool.core.policies.base import Key
from carpool.core.policies.view import DeviceView, JobView, View


class PlacementPolicy(Protocol):
    """One signature for every placement policy; `BasePlacement` has defaults for all of it.

    The machine has the last word.  Devices without jobs come first, those that do not meet the conditions of joining
    others come last (or are closed, see `Settings.placement_strict`), and among the rest the policy decides.
    """

    name: str
    #: Whether jobs may be placed beside others at all.
    collocates: bool
    #: Names it understands in ``Settings.extra``.
    settings: tuple[str, ...]

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        """The order in which devices are tried for a job: smaller comes first.

        It may depend on the job, the device and ``view.settings`` only.  Ties go to the device with fewer newcomers
        that are warming up, then to the one that was added first.
        """


class BasePlacement:
    """Devices in the order in which they were added, shared: override what differs."""

    name = "base"
    collocates = True
    settings: tuple[str, ...] = ()

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        return (device.position,)
