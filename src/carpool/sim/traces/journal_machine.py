"""What a journal says about its machine: rates of moves, what switches cost, and which jobs computed on its cores.

A job's process measures what a switch costs: saving the residue before it and restoring the residue after it.  Events
of turns have that figure.  Where the journal no longer has them, the residue's size and the rates of moves tell.
"""

from __future__ import annotations

import sqlite3
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from carpool.core.model import Micros
from carpool.sim.model.options import COPY_BYTES_PER_US
from carpool.sim.model.trace_job import TraceJob

HOST_DEVICE = "host"  # begins the names of host devices
_JOBS = """SELECT id, device, switches, residue_bytes, out_bytes, out_us, in_bytes, in_us FROM jobs
  WHERE submitted_us >= ? AND phase = 'ended' ORDER BY id"""
_MEASURED = """SELECT job, json_extract(data, '$.usage.switch_cost_us'), max(seq) FROM events
  WHERE kind IN ('TurnReleased', 'TurnPassed') GROUP BY job"""


@dataclass(frozen=True, slots=True)
class JournalMachine:
    """``offload``, ``restore``: median rates over the jobs that moved, bytes per microsecond; None: no job moved.

    ``switch_us``: of each job that has had several turns, by its id.  ``on_cores``: ids of jobs on host devices;
    ``on_gpus``: whether other jobs ran on other devices.
    """

    offload: int | None = None
    restore: int | None = None
    switch_us: Mapping[str, Micros] = field(default_factory=dict)
    on_cores: frozenset[str] = frozenset()
    on_gpus: bool = False

    @property
    def usual_switch_us(self) -> Micros:
        """What a switch costs a job that has had one turn only: the median of the others."""
        return round(statistics.median(self.switch_us.values())) if self.switch_us else 0

    def of(self, jobs: Iterable[TraceJob]) -> list[TraceJob]:
        """Return the journal's jobs with what their switches cost, and the cores that their computing demands."""
        usual = self.usual_switch_us
        known = (replace(job, switch_us=self.switch_us.get(job.id, usual)) for job in jobs)
        return [job.on_host_devices() if job.id in self.on_cores else job for job in known]


def machine_of(connection: sqlite3.Connection, since_us: Micros) -> JournalMachine:
    """Return what jobs submitted since a time of the wall clock say about the machine.  Raises sqlite3.Error."""
    rows = connection.execute(_JOBS, (since_us,)).fetchall()
    offload, restore = _rate(rows, "out"), _rate(rows, "in")
    copied = {row["id"]: _copy_us(row["residue_bytes"], offload, restore) for row in rows if row["switches"] > 1}
    measured = {job: cost for job, cost, _ in connection.execute(_MEASURED) if cost} if copied else {}
    costs = {str(job): measured.get(job, us) for job, us in copied.items()}
    devices = {str(row["id"]): row["device"] for row in rows if row["device"]}
    on_cores = frozenset(job for job, device in devices.items() if device.startswith(HOST_DEVICE))
    return JournalMachine(offload, restore, costs, on_cores, len(on_cores) < len(devices))


def _rate(rows: Sequence[sqlite3.Row], way: str) -> int | None:
    """Return the median rate of moves, at least 1 byte per microsecond."""
    pairs = [(row[f"{way}_bytes"], row[f"{way}_us"]) for row in rows]
    rates = [moved // us for moved, us in pairs if moved and us]
    return max(1, round(statistics.median(rates))) if rates else None


def _copy_us(size: int, offload: int | None, restore: int | None) -> Micros:
    """Return how long saving and restoring takes at these rates, or at the simulator's own where none is known."""
    return sum(-(-size // (rate or COPY_BYTES_PER_US)) for rate in (offload, restore))
