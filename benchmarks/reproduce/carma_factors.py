"""What could hold a way of collocation back, each of it to be taken away alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.reproduce.carma_ways import MEMORY, Way
from benchmarks.reproduce.runs import NEVER_US, SECOND
from carpool.sim.model.trace_job import TraceJob


@dataclass(frozen=True, slots=True)
class Factor:
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the core, other than the system's
    memory: int = MEMORY  # of each device, bytes
    split: bool = False  # a task for several devices becomes as many tasks for one

    def applied(self, way: Way) -> Way:
        return replace(way, settings=replace(way.settings, **self.settings))

    def tasks(self, jobs: Sequence[TraceJob]) -> list[TraceJob]:
        if not self.split:
            return list(jobs)
        return [replace(job, id=f"{job.id}-{part}", gpus=1) for job in jobs for part in range(job.gpus)]


#: More memory than all tasks have together.
PLENTY = 100 * MEMORY
FACTORS = {
    "as it is": Factor(),
    "no risk threshold": Factor({"risk_active_ppm": 2_000_000}),
    "no margin": Factor({"margin": 0}),
    "newcomers without limit": Factor({"warm_limit": 1000, "warm_window_us": 0}),
    "conditions are strict": Factor({"placement_strict": 1}),
    "devices are kept after 60 s": Factor({"reserve_after_us": 60 * SECOND}),
    "devices are kept after an hour": Factor({"reserve_after_us": 3600 * SECOND}),
    "devices are never kept": Factor({"reserve_after_us": NEVER_US}),
    "tasks for two devices as two tasks": Factor(split=True),
    "memory for all": Factor(memory=PLENTY),
    "both": Factor(memory=PLENTY, split=True),
}
