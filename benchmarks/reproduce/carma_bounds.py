"""What no scheduler can beat under the model in which the ways of collocation are simulated.

A device gives one minute of computing per minute, tasks never run faster than alone, and nobody starts before it has
arrived.  Everything else (which device, in which order, that a task stays where it is) is left free, so a real
schedule is longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.reproduce.carma_ways import DEVICES, MEMORY, WARMUP_SHARE_PPM, WARMUP_US
from benchmarks.reproduce.markdown import table
from benchmarks.reproduce.runs import Data, minutes
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob

#: What bounds the makespan, by the name under which it is stored, and what the column is called.
LIMITS = {
    "whole": "devices to oneself, never idle",
    "longest": "arrival and length",
    "memory": "memory",
    "computing": "computing",
    "apart": "computing, tasks for two devices to themselves",
}
#: The case in which each task uses what is assumed for its kind.
AS_ASSUMED = "as assumed"
#: What bounds every way of collocation in Carpool; `whole` is for ``exclusive`` only.
SHARED = ("longest", "memory", "computing", "apart")


@dataclass(frozen=True, slots=True)
class Demand:
    """What a task needs of all devices together: ``share`` devices while it runs as alone, ``amount`` in all."""

    arrival_us: int
    share: float  # devices
    amount: float  # devices x microseconds

    def left(self, now_us: int) -> float:
        """What is left to do at a moment, however early and undisturbed it has begun."""
        return max(0.0, self.amount - self.share * max(0, now_us - self.arrival_us))

    @property
    def end_us(self) -> float:
        """When it ends if it begins at once and runs as alone."""
        return self.arrival_us + self.amount / self.share


def bounds(jobs: Sequence[TraceJob]) -> Data:
    """Minutes from the first arrival on, by the names of `LIMITS`."""
    begin_us = min(job.submit_us for job in jobs)
    found = {
        "whole": earliest_end(_demands(jobs, lambda job: float(job.gpus))),
        "longest": max(job.submit_us + job.duration_us for job in jobs),
        "memory": earliest_end(map(_memory, jobs)),
        "computing": earliest_end(_demands(jobs, _computing)),
        "apart": earliest_end(_demands(jobs, _apart)),
    }
    return {name: minutes((end_us - begin_us) / 1e6) for name, end_us in found.items()}


def highest(found: Data) -> float:
    """Minutes that no way of collocation stays below."""
    return max(found[name] for name in SHARED)


def earliest_end(demands: Iterable[Demand], devices: int = DEVICES) -> float:
    """Microseconds at which all can have been served at the earliest, by ``devices`` of which each gives 1.

    What cannot have been done before a moment t has to be done after it: t + sum of what is left / devices, for the
    worst t.  Between arrivals and earliest ends of tasks the sum is linear, so only those moments need be looked at.
    """
    known = [each for each in demands if each.share > 0]
    moments = {0.0, *(float(each.arrival_us) for each in known), *(each.end_us for each in known)}
    return max(moment + sum(each.left(int(moment)) for each in known) / devices for moment in moments)


def _demands(jobs: Iterable[TraceJob], share_of: Callable[[TraceJob], float]) -> list[Demand]:
    return [Demand(job.submit_us, share_of(job), share_of(job) * job.duration_us) for job in jobs]


def _computing(job: TraceJob) -> float:
    return job.gpus * job.utilization_ppm / WHOLE_PPM


def _apart(job: TraceJob) -> float:
    return float(job.gpus) if job.gpus > 1 else _computing(job)


def _memory(job: TraceJob) -> Demand:
    """While it computes it needs all of its memory; at first a part.  A task that is slowed needs it for longer."""
    share = job.gpus * (job.persistent + job.ephemeral) / MEMORY
    spared_us = min(WARMUP_US, job.duration_us) * (WHOLE_PPM - WARMUP_SHARE_PPM) // WHOLE_PPM
    return Demand(job.submit_us, share, share * (job.duration_us - spared_us))


def bounds_table(trace: Data) -> str:
    """One line for each assumption about utilization; the last columns are shares of the makespan of ``exclusive``."""
    rows = []
    for case, found in trace["bounds"].items():
        ways = trace["sensitivity"][case]
        exclusive = ways["exclusive"]["makespan"]
        best = min(row["makespan"] for row in _simulated(trace, case))
        figures = (f"{found[name]:,.1f}" for name in LIMITS)
        rows.append((case, *figures, f"{highest(found) / exclusive:.2f}", f"{best / exclusive:.2f}"))
    return table(("minutes", *LIMITS.values(), "no less of exclusive than", "best simulated"), rows)


def _simulated(trace: Data, case: str) -> list[Data]:
    """All that has been simulated under an assumption, but for ``exclusive``."""
    found = [row for name, row in trace["sensitivity"][case].items() if name != "exclusive"]
    if case == AS_ASSUMED:
        found += [row for way in trace["ways"].values() for rows in way.values() for row in rows.values()]
    return found
