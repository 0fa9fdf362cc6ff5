"""Guards around users' placement policies: where one is wrong, devices are tried as `magm` would.

The fault is remembered.
"""

from __future__ import annotations

from carpool.core.policies.base import Key
from carpool.core.policies.guard import CallLimit, Watched, is_key, unlimited
from carpool.core.policies.placement.base import PlacementPolicy
from carpool.core.policies.placement.magm import Magm
from carpool.core.policies.view import DeviceView, JobView, View


class GuardedPlacement(Watched[PlacementPolicy]):
    """Asks ``policy``, and answers as `Magm` would where the answer is an error or nonsense."""

    def __init__(self, policy: PlacementPolicy, limit: CallLimit = unlimited) -> None:
        super().__init__(policy, limit)
        self._fallback = Magm()
        self.collocates = bool(policy.collocates)

    def device_key(self, view: View, job: JobView, device: DeviceView) -> Key:
        own = self._fallback.device_key(view, job, device)
        return self._checked(lambda: self._policy.device_key(view, job, device), is_key, "device_key", own)
