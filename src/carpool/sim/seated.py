"""One modelled job in a lane: what its process, its seat and its script would do."""

from __future__ import annotations

from enum import Enum

from carpool.core.model import Cause, JobId, LaneId, Memory, MemoryClass, Micros, Usage
from carpool.sim.job import TraceJob
from carpool.sim.motion import Motion
from carpool.sim.result import JobResult
from carpool.sim.specs import Attempt
from carpool.sim.store import Rates, Store


class Doing(Enum):
    """What the job is at."""

    HOST = "host"  # off the device: start-up, or the host time of an iteration after an early release
    MEMORY = "memory"  # waits for memory, with or without the turn
    TURN = "turn"  # waits for the turn
    SWITCHING = "switching"  # has the turn; what is in the host store, and what it left in the lane, is brought back
    COMPUTING = "computing"  # has the turn


class SeatedJob:
    """The state; `carpool.sim.lanes` moves it."""

    __slots__ = (
        *("allocated", "asked", "attempt", "began_us", "demand_ppm", "device", "doing", "grace_us", "held_us"),
        *("holds", "job", "lane", "leaves_us", "limit", "motion", "number", "plan", "result", "sample_at"),
        *("start_us", "store", "successor", "turns", "watched_at", "yield_asked"),
    )

    def __init__(
        self, number: JobId, result: JobResult, attempt: Attempt, resolution_us: Micros, grace_us: Micros, rates: Rates
    ) -> None:
        self.number = number
        self.job: TraceJob = result.job
        self.result = result
        self.attempt = attempt
        self.demand_ppm = self.job.demand_ppm
        self.motion = Motion(self.job, attempt, resolution_us)
        self.doing = Doing.HOST
        self.device = 0
        self.lane: LaneId = 0
        self.holds = False
        self.began_us: Micros = 0  # of the present turn
        self.start_us: Micros = 0  # position at which the present turn began
        self.held_us: Micros = 0  # time of the turns before it
        self.turns = 0
        self.yield_asked: Cause | None = None
        self.grace_us = grace_us  # it loses its turn when it is off the device for longer, and ...
        self.watched_at: Micros | None = None  # ... somebody looks: since it was at this position
        self.successor: JobId | None = None
        self.limit = Memory()
        self.asked: MemoryClass | None = None
        self.allocated = False  # its persistent memory has been granted once, and has content
        self.store = Store(rates)
        self.leaves_us: Micros | None = None  # when all of its memory will be in the store
        self.sample_at: Micros | None = None  # position at which it is measured
        self.plan = 0  # number of the plan that is still meant

    @property
    def used(self) -> int:
        """Persistent bytes that have content."""
        return self.job.persistent if self.allocated else 0

    def need(self) -> tuple[MemoryClass, int] | None:
        """Memory that it lacks for what it does next: persistent before its first turn, ephemeral in it.

        What is in the host store it does not lack: it comes back with the turn.
        """
        if not self.allocated and self.limit.persistent < self.job.persistent:
            return MemoryClass.PERSISTENT, self.job.persistent
        if self.holds and self.limit.ephemeral < self.job.ephemeral:
            return MemoryClass.EPHEMERAL, self.job.ephemeral
        return None

    def usage(self, now: Micros, switch_us: Micros) -> Usage:
        """Its counters, as its seat would show them."""
        self.motion.advance(now)
        store = self.store
        held = self.held_us + (now - self.began_us if self.holds else 0)
        return Usage(
            persistent_live=self.limit.persistent,
            persistent_peak=self.limit.persistent,
            ephemeral_peak=self.limit.ephemeral,
            iterations=self.motion.iterations,
            device_us=held,
            switch_cost_us=switch_us,
            stored=store.stored,
            out_bytes=store.out_bytes,
            out_us=store.out_us,
            in_bytes=store.in_bytes,
            in_us=store.in_us,
        )
