"""First come, first served: one lane, everything in order of arrival."""

from __future__ import annotations

from carpool.core.policies.base import BasePolicy


class Fifo(BasePolicy):
    """The job that came first computes whenever it can; the others fill the gaps while it is on the CPU.

    On whole devices jobs start in order of arrival, and no job goes ahead of one that does not fit, unless the setting
    ``backfill`` says so.
    """

    name = "fifo"
