"""A policy of one's own: whoever holds least persistent memory computes first, for at most a given time."""

from __future__ import annotations

from carpool.policies import BasePolicy, JobView, Key, View


class Smallest(BasePolicy):
    name = "smallest"
    backfill = True
    settings = ("patience_us",)

    def turn_key(self, view: View, job: JobView) -> Key:
        return (job.reserved.persistent, job.arrival)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> int | None:
        if self.turn_key(view, candidate) < self.turn_key(view, holder):
            return 0
        return view.settings.extra.get("patience_us")
