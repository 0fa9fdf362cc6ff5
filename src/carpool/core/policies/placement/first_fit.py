"""The first device that takes the job."""

from __future__ import annotations

from carpool.core.policies.placement.base import BasePlacement


class FirstFit(BasePlacement):
    """In the order in which devices were added: early ones are filled before late ones are used by several."""

    name = "first-fit"
