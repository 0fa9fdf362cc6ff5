"""Priority classes with aging: important jobs go first, and jobs that wait long enough become important."""

from __future__ import annotations

from carpool.policies import BasePolicy, JobView, Key, View

HEAD_START_US = 600_000_000  # ten minutes


class Aging(BasePolicy):
    """Each 100 of ``--weight`` counts as a head start: as if the job had been submitted that much earlier."""

    name = "aging"
    backfill = True
    settings = ("head_start_us",)

    def admission_key(self, view: View, job: JobView) -> Key:
        head_start_us = view.settings.extra.get("head_start_us", HEAD_START_US)
        return (job.submitted_us - job.weight * head_start_us // 100,)
