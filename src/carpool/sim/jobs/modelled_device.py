"""A modelled device: which jobs compute on it, how fast, and how much memory is reserved."""

from __future__ import annotations

from collections.abc import Sequence

from carpool.core.model import JobId, LaneId, Memory, Micros
from carpool.sim.jobs.ledger import Ledger
from carpool.sim.jobs.modelled_job import SeatedJob
from carpool.sim.jobs.telemetry import Level, ModelledTelemetry
from carpool.sim.model.options import Interference
from carpool.sim.model.result import Series
from carpool.sim.model.trace_job import WHOLE_PPM


class ModelledDevice:
    """A modelled device.  Speeds change only when a job begins or stops to compute."""

    def __init__(self, interference: Interference, ledger: Ledger, telemetry: ModelledTelemetry | None = None) -> None:
        self._interference = interference
        self._telemetry = telemetry
        self._ledger = ledger
        self._computing: dict[JobId, SeatedJob] = {}
        self._lanes: dict[LaneId, int] = {}
        self._persistent: dict[JobId, int] = {}
        self._bytes = 0
        self._busy_ppm = 0
        self._weights = 0
        self._present: set[JobId] = set()
        self._serving = False
        self._noted_us: Micros = 0
        self._working = False  # whether any job has computed since then
        self._since_us: Micros = 0
        self._memory: Series | None = None
        self._busy: Series | None = None
        if ledger.recording is not None:
            self._memory, self._busy = Series(), Series()
            ledger.recording.memory.append(self._memory)
            ledger.recording.busy.append(self._busy)

    # Speed

    def enter(self, job: SeatedJob, now: Micros) -> list[SeatedJob]:
        """Let the job compute from now on.  Returns the jobs whose speed has changed."""
        self._computing[job.number] = job
        return self._adapt(now)

    def leave(self, job: SeatedJob, now: Micros) -> list[SeatedJob]:
        """Let the job stop computing.  Returns the jobs whose speed has changed."""
        del self._computing[job.number]
        return self._adapt(now)

    def _adapt(self, now: Micros) -> list[SeatedJob]:
        jobs = self._computing.values()
        speeds = self._interference.speeds([job.job for job in jobs]) if jobs else ()
        changed, used = [], 0
        for job, speed in zip(jobs, speeds, strict=True):
            used += job.demand_ppm * speed // WHOLE_PPM
            if job.motion.set_speed(now, speed):
                changed.append(job)
        self._note_busy(now, min(used, WHOLE_PPM))
        if self._telemetry is not None:
            self._telemetry.change(self._level(speeds))
        return changed

    def _level(self, speeds: Sequence[int]) -> Level:
        """Return the values of the counters while these jobs compute."""
        pairs = tuple(zip((job.counters_ppm for job in self._computing.values()), speeds, strict=True))
        active, occupancy, dram = (
            min(WHOLE_PPM, sum(shares[which] * speed // WHOLE_PPM for shares, speed in pairs)) for which in range(3)
        )
        return active, occupancy, dram

    def _note_busy(self, now: Micros, busy_ppm: int) -> None:
        self._ledger.busy_ppm_us += self._busy_ppm * (now - self._since_us)
        if self._working:
            self._ledger.occupied_us += now - self._since_us
        self._since_us, self._working = now, bool(self._computing)
        if busy_ppm != self._busy_ppm:
            self._busy_ppm = busy_ppm
            _append(self._busy, now, busy_ppm / WHOLE_PPM)

    def computing(self) -> tuple[SeatedJob, ...]:
        """Return the jobs that compute at present."""
        return tuple(self._computing.values())

    # Time that services leave to jobs

    def joins(self, job: SeatedJob, now: Micros) -> None:
        """Note that the job could compute from now on."""
        self._note_left(now)
        self._present.add(job.number)

    def parts(self, job: SeatedJob, now: Micros) -> None:
        """Note that the job is no longer there."""
        self._note_left(now)
        self._present.discard(job.number)

    def serves(self, begins: bool, now: Micros, stalled_us: Micros = 0) -> None:
        """Begin or end a service's turn.  Jobs could have computed in the time it waited for weights."""
        self._note_left(now)
        self._serving = begins
        if self._present:
            self._ledger.left_us += stalled_us

    def _note_left(self, now: Micros) -> None:
        if self._present and not self._serving:
            self._ledger.left_us += now - self._noted_us
        self._noted_us = now

    # Memory

    def resize_lane(self, lane: LaneId, size: int, now: Micros) -> None:
        """Set the size of a lane; 0 closes it."""
        self._bytes += size - self._lanes.pop(lane, 0)
        if size:
            self._lanes[lane] = size
        _append(self._memory, now, self._bytes)

    def holds_memory(self, job: JobId, memory: Memory, now: Micros) -> None:
        """Set the job's limits; its ephemeral memory belongs to its lane."""
        before = self._persistent.pop(job, 0)
        if memory.persistent:
            self._persistent[job] = memory.persistent
        if memory.persistent != before:
            self._bytes += memory.persistent - before
            _append(self._memory, now, self._bytes)

    def holds_weights(self, size: int, now: Micros) -> None:
        """Set the size of all weights of services."""
        self._bytes += size - self._weights
        self._weights = size
        _append(self._memory, now, self._bytes)


def _append(series: Series | None, now: Micros, value: float) -> None:
    """Append a value; of several values at one moment the last one counts."""
    if series is None:
        return
    if series.times and series.times[-1] == now:
        series.values[-1] = value
    else:
        series.times.append(now)
        series.values.append(value)
