"""A device for each job: no job is placed beside another."""

from __future__ import annotations

from carpool.core.policies.placement.base import BasePlacement


class Exclusive(BasePlacement):
    """Only devices without any job are open."""

    name = "exclusive"
    collocates = False
