"""One modelled job in a lane: the state of its process, seat and script, and where it may have to give way."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from enum import Enum

from carpool.core.model import Cause, JobId, LaneId, Memory, MemoryClass, Micros, Usage
from carpool.sim.jobs.job_progress import HostPhase, Motion
from carpool.sim.model.job_specs import SimulatedAttempt
from carpool.sim.model.options import Options
from carpool.sim.model.result import HostStore, JobResult, Rates
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob


class Doing(Enum):
    """The activity of the job."""

    HOST = "host"  # off the device: start-up, the host time of an iteration after an early release, or the end
    MEMORY = "memory"  # waits for memory, with or without the turn
    TURN = "turn"  # waits for the turn, or to go on after a pause
    SWITCHING = "switching"  # has the turn; memory in the host store and the residue are brought back
    COMPUTING = "computing"  # has the turn


@dataclass(eq=False, slots=True)
class SeatedJob:
    """The state of a job; `carpool.sim.jobs.lane_jobs` changes it."""

    number: JobId
    result: JobResult
    attempt: SimulatedAttempt
    options: InitVar[Options]
    job: TraceJob = field(init=False)
    counters_ppm: tuple[int, int, int] = field(init=False)
    demand_ppm: int = field(init=False)
    cores_ppm: int = 0  # of a modelled machine, that its iterations demand on average
    motion: Motion = field(init=False)
    switch_us: Micros = field(init=False)  # what it loses with each turn that it comes back to
    doing: Doing = Doing.HOST
    device: int = 0
    further: tuple[int, ...] = ()  # further devices of a multi-device job, which it has to itself
    lane: LaneId = 0
    holds: bool = False  # it may compute; not while it has paused
    pause_asked: bool = False  # for a service; the lane stays its own
    paused: bool = False
    back: tuple[int, Micros] = (0, 0)  # return from the host: position, and when if nothing slows it
    phase: HostPhase | None = None  # work on a modelled host until then
    began_us: Micros = 0  # of the present turn
    start_us: Micros = 0  # position at which the present turn began
    held_us: Micros = 0  # time of the turns before it
    turns: int = 0
    yield_asked: Cause | None = None
    grace_us: Micros = field(init=False)  # it loses its turn if it is off the device for longer while ...
    watched_at: Micros | None = None  # ... it is watched: since it was at this position
    successor: JobId | None = None
    limit: Memory = field(default_factory=Memory)
    asked: MemoryClass | None = None
    ran_out: bool = False  # it was denied memory, and ends
    grows_at: Micros | None = field(init=False)  # where it needs more memory
    wanted: Memory = field(init=False)  # its present need
    content: int = 0  # bytes of persistent memory that it has been granted, and that have content
    store: HostStore = field(init=False)
    leaves_us: Micros | None = None  # when all of its memory will be in the store
    sample_at: Micros | None = None  # position at which it is measured
    plan: int = 0  # number of the valid plan

    def __post_init__(self, options: Options) -> None:
        self.job = self.result.job
        self.counters_ppm = self.job.counters_ppm
        self.demand_ppm = self.counters_ppm[0]
        self.motion = Motion(self.job, self.attempt, options.resolution_us)
        self.switch_us = options.switch_us(self.job)
        if options.cores is not None:
            self.cores_ppm = self.job.iteration_cores_ppm
        self.grace_us = options.settings.grace_us
        self.grows_at, self.wanted = _at_first(self.job, self.motion, options)
        self.store = HostStore(Rates(options.offload_bytes_per_us, options.restore_bytes_per_us))

    # Positions ahead at which it may have to give way

    def idles(self) -> bool:
        """Whether the host time of its iterations is long enough to lose the turn."""
        return self.motion.host_us > self.grace_us * self.motion.lump

    def early_at(self) -> Micros | None:
        """Return where a watched job will have been off the device for longer than the grace; None: nowhere.

        Time before it was watched does not count.
        """
        if self.watched_at is None or not self.idles():
            return None
        motion, grace = self.motion, self.grace_us * self.motion.lump
        device_end = motion.device_end()
        lump_end, off = device_end + motion.host_us, max(device_end, self.watched_at) + grace
        return off if off < lump_end else lump_end + motion.device_us + grace

    def boundary_at(self) -> Micros:
        """Return the end of an iteration at which the job gives way if asked; at least one is done in a turn."""
        motion = self.motion
        boundary = motion.boundary_after(max(motion.position_us() - 1, self.start_us))
        if self.idles() and boundary >= motion.device_end():
            return motion.lump_end_after(motion.position_us())
        return boundary

    # Memory and counters

    @property
    def used(self) -> int:
        """Bytes of persistent memory with content."""
        return self.content

    def need(self) -> tuple[MemoryClass, int] | None:
        """Return the memory that it lacks for its next step: persistent before its first turn, ephemeral in it.

        Memory in the host store is not lacking: it comes back with the turn.
        """
        wanted = self.wanted
        if self.content < wanted.persistent and self.limit.persistent < wanted.persistent:
            return MemoryClass.PERSISTENT, wanted.persistent
        if self.holds and self.limit.ephemeral < wanted.ephemeral:
            return MemoryClass.EPHEMERAL, wanted.ephemeral
        return None

    def needs_all(self) -> None:
        """Note that its warm-up is over: it needs all of its memory."""
        self.grows_at, self.wanted = None, Memory(self.job.persistent, self.job.ephemeral)

    def host_cores_ppm(self) -> int:
        """Return what it demands of the machine's cores while it works without the device, where it now is."""
        position = self.motion.position_us()
        if position < self.motion.startup_us:
            return self.job.startup_cores_ppm
        return self.job.end_cores_ppm if position >= self.motion.computed_us else WHOLE_PPM

    def works_at(self, host_ppm: int, now: Micros) -> bool:
        """Set the speed of the machine's cores for what it does there.  Returns False if nothing has changed."""
        if self.phase is not None:
            return self.phase.set_speed(now, host_ppm)
        return self.motion.set_host_speed(now, host_ppm)

    def usage(self, now: Micros) -> Usage:
        """Return its counters, as its seat would show them."""
        self.motion.advance(now)
        store = self.store
        held = self.held_us + (now - self.began_us if self.holds else 0)
        return Usage(
            persistent_live=self.limit.persistent,
            persistent_peak=self.limit.persistent,
            ephemeral_peak=self.limit.ephemeral,
            iterations=self.motion.iterations,
            device_us=held,
            switch_cost_us=self.switch_us,
            stored=store.stored,
            out_bytes=store.out_bytes,
            out_us=store.out_us,
            in_bytes=store.in_bytes,
            in_us=store.in_us,
        )


def _at_first(job: TraceJob, motion: Motion, options: Options) -> tuple[Micros | None, Memory]:
    """Return the position at which a job needs all of its memory (None: from the begin), and its need until then."""
    grows_at = max(motion.position_us(), motion.startup_us) + options.warmup_us
    share = options.warmup_share_ppm
    if not options.warmup_us or share == WHOLE_PPM or grows_at >= motion.computed_us:
        return None, Memory(job.persistent, job.ephemeral)
    return grows_at, Memory(job.persistent * share // WHOLE_PPM, job.ephemeral * share // WHOLE_PPM)
