"""The result of a simulation: one record per job, and (if requested) which job was where at which time.

A modelled job's persistent memory in the host store, and the time that moving it takes.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from carpool.core.model import Micros, Outcome
from carpool.sim.model.options import Options
from carpool.sim.model.served_models import ServicesResult
from carpool.sim.model.trace_job import TraceJob


class Rates(NamedTuple):
    """Bytes per microsecond; 0: moving takes no time."""

    offload: int
    restore: int


class HostStore:
    """The part of a job's memory in the store, and its counters as `Usage` has them.

    A turn may end before everything is back: the rest stays, and is restored with the next turn.
    """

    __slots__ = ("_rates", "in_bytes", "in_us", "offloads", "out_bytes", "out_us", "stored")

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self.stored = self.offloads = 0
        self.out_bytes = self.in_bytes = 0
        self.out_us: Micros = 0
        self.in_us: Micros = 0

    def leave_us(self, used: int) -> Micros:
        """Return how long offloading takes until all of ``used`` bytes are in the store."""
        return _time(used - self.stored, self._rates.offload)

    def left(self, used: int) -> None:
        """Note that all bytes are in the store."""
        self.out_us += self.leave_us(used)
        self.out_bytes += used - self.stored
        self.stored = used
        self.offloads += 1

    @property
    def return_us(self) -> Micros:
        """The time that restoring the rest takes."""
        return _time(self.stored, self._rates.restore)

    def returned(self, elapsed: Micros) -> None:
        """Restore as much as there was time for in a turn of ``elapsed`` microseconds."""
        back = min(self.stored, elapsed * self._rates.restore) if self._rates.restore else self.stored
        self.in_us += min(elapsed, self.return_us)
        self.in_bytes += back
        self.stored -= back


def _time(size: int, rate: int) -> Micros:
    return -(-size // rate) if rate else 0


@dataclass(slots=True)
class JobResult:
    """The result of one job of the trace.  Attempts after a failure count as the same job."""

    job: TraceJob
    outcome: Outcome
    started_us: Micros | None  # first time on a device; None: never
    ended_us: Micros
    service_us: Micros  # time for which it held its devices (lanes: its lane's turn)
    preemptions: int = 0  # times it lost its devices or its turn although it wanted to go on
    attempts: int = 1
    reason: str = ""  # why it was refused or failed
    offloads: int = 0  # times its memory was moved to the host store
    moved_bytes: int = 0  # to the host store and back
    moving_us: Micros = 0  # time that this took; the way back is part of its service
    out_of_memory: int = 0  # attempts that ended because memory was denied
    recoveries: int = 0  # those of them after which the core has started it again
    lost_us: Micros = 0  # service that was lost because the attempt ran out of memory
    pauses: int = 0  # times it paused for a service; how long that took is not part of its service

    def moved(self, store: HostStore) -> None:
        """Add what an attempt has moved."""
        self.offloads += store.offloads
        self.moved_bytes += store.out_bytes + store.in_bytes
        self.moving_us += store.out_us + store.in_us

    @property
    def jct_us(self) -> Micros:
        """Job completion time: from submission to end."""
        return self.ended_us - self.job.submit_us

    @property
    def queueing_us(self) -> Micros:
        """Queueing delay: from submission to the first time on a device."""
        return (self.ended_us if self.started_us is None else self.started_us) - self.job.submit_us

    @property
    def waiting_us(self) -> Micros:
        """All time between submission and end without devices (lanes: without the turn)."""
        return self.jct_us - self.service_us


class Span(NamedTuple):
    """A job on a device: ``[begin_us, end_us)``."""

    job: int  # index into Result.jobs
    device: int  # 0, 1, 2 ...
    lane: int  # 0 for whole devices
    begin_us: Micros
    end_us: Micros


@dataclass
class Series:
    """A step function: from ``times[i]`` on the value is ``values[i]``.  Times do not go back."""

    times: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))


@dataclass
class Recording:
    """Spans and series, only with `Options.record`."""

    spans: list[Span] = field(default_factory=list)
    memory: list[Series] = field(default_factory=list)  # bytes reserved, per device; empty for whole devices
    busy: list[Series] = field(default_factory=list)  # share of the device in use, 0..1, per device


@dataclass
class Result:
    """Jobs are in the order of the trace."""

    options: Options
    jobs: list[JobResult]
    busy_us: int  # device-microseconds in use, summed over the devices (lanes: weighted by utilization, at most 1 each)
    events: int  # events that the core has handled
    wall_s: float  # real time that the simulation took
    recording: Recording | None = None
    occupied_us: int = 0  # device-microseconds in which at least one job computed, summed over the devices
    left_us: int = 0  # device-microseconds in which jobs were there and no service computed, summed over the devices
    services: ServicesResult | None = None
