"""Shortest job first, by total length, never taking anything away."""

from __future__ import annotations

from carpool.core.model import Micros
from carpool.core.policies.base import BasePolicy, Key
from carpool.core.policies.srtf import expected_us
from carpool.core.policies.view import JobView, View


class Sjf(BasePolicy):
    """The shortest waiting job starts next, and keeps its turn until it is off the device or done."""

    name = "sjf"

    def admission_key(self, view: View, job: JobView) -> Key:
        return (job.attained_us + expected_us(job),)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        return None
