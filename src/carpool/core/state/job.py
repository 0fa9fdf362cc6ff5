"""One job, as the core keeps it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from carpool.core.model import (
    PINNED_ENGINE,
    STOP_SIGNAL,
    Attempt,
    Demand,
    DeviceId,
    JobId,
    JobPhase,
    JobSpec,
    LaneId,
    Memory,
    MemoryClass,
    Micros,
    Outcome,
    Reason,
    Usage,
)
from carpool.core.policies.base import Key
from carpool.core.policies.view import JobView
from carpool.core.state.seat_states import IDLE, NOTHING, RESIDENT, Residency, Turn, TurnKey, TurnState
from carpool.core.units import job_number

NO_USAGE = Usage()
#: Events that are kept for the story of each job and lane.
HISTORY = 16
#: Source of the estimate of a job that has run out of memory.
RECOVERY = "recovery"
#: Source of an estimate that was learned from other elements of the job's array.
ARRAY = "array"
#: The policy's key, 0 runs | 1 waits (queues only), a number that orders equal ones
Order = tuple[Key, int, int]


class Requirements(NamedTuple):
    """Everything that decides where a queued job fits: two jobs with the same requirements fit now, or neither."""

    account: int
    owner: int
    device: DeviceId | tuple[DeviceId, ...] | None  # `JobSpec.device`
    memory_known: bool
    exclusive: bool
    gang: int
    checkpoint: bool
    outgrown: int  # bytes of the largest device that was too small for the job alone; 0: none was
    guessed: bool  # its memory was guessed after an attempt that ran out of it, with room to spare
    serves: bool
    engine: bool
    group: str
    memory: Memory  # to reserve at the start: nothing yet for a job that is suspended between its turns


@dataclass(frozen=True, slots=True)
class Request:
    """A request for memory that waits."""

    memory_class: MemoryClass
    total: int  # bytes
    sequence: int  # older requests have smaller ones
    keeps_turn: bool = False  # the job cannot let go of its turn before it has the memory
    packs: bool = False  # it is for persistent memory instead of all limits


class WaitState(Enum):
    """The wait of a job that needs more memory before it can go on.

    No table of transitions: the state is worked out anew whenever the device is served (`core.memory.waiters`).
    """

    NONE = "none"  # nothing, or its need has not been evaluated yet
    MOVING = "moving"  # other jobs are leaving for it
    BLOCKED = "blocked"  # jobs that could leave compute, or come first
    STORE = "store"  # jobs that could leave find no room in the host store
    TURNS = "turns"  # it needs the whole device: holders have to let go, and no other job begins


#: Attributes that no view and no requirement is made of.
_ABOUT_CACHE = ("cached", "cached_us", "wait", "order")


@dataclass(slots=True)
class MeasurementWindow:
    """The time during which a job has the same co-runner: see `core.metering.co_runners`."""

    co_runner: str | None = None  # in its last turn: the kind beside it, "" alone; None: unknown
    since: Usage | None = None  # its counters where the window begins
    told_us: Micros = -1  # when its counters were told last, as far as they are still right
    cut: bool = False  # its last turn did not end at an iteration boundary


class Job:
    """One job.  Setting an attribute drops its cached view and requirements, unless neither is made of it.

    Its device is told, because what it takes further jobs for may have changed.

    What nearly every job starts with are attributes of the class: a job that is queued, or has ended, is small.
    """

    id: JobId
    spec: JobSpec
    arrival: int
    submitted_us: Micros
    phase: JobPhase = JobPhase.QUEUED
    outcome: Outcome | None = None
    reason: Reason | None = None
    cancelled: bool = False
    killed: bool = False
    timed_out: str = ""  # which limit it has reached; it is being stopped
    requeued_by: str = ""  # who wants it to be started again; it is being stopped
    timed_from_us: Micros | None = None  # since when its time limit counts
    clock_stopped_us: Micros | None = None  # since when that clock stands still: the job is paused
    warned: bool = False  # its signal before the time limit has been sent
    warned_of_device_time: bool = False  # the same of its limit of device time
    unmet: frozenset[JobId] = frozenset()  # dependencies that have not ended
    too_early: bool = False  # its time to begin (`JobSpec.begin_us`) has not come
    past: tuple[Attempt, ...] = ()  # earlier starts that came to nothing
    no_place: bool = False  # as many of its array as may run at once have a place
    pause_us: Micros = 0  # between the last attempt and the next one, which may not be placed yet; 0: there is none
    denied: int = 0  # capacity of its device, if what it asked for last would not fit there even alone
    refused: str | None = None  # the figures of the last request that was refused for want of memory, for people
    # Place
    device: DeviceId | None = None
    lane: LaneId | None = None
    placed: int = 0  # number of its placement; the largest came last
    started_us: Micros | None = None
    attached: bool = False
    was_attached: bool = False
    adopted: bool = False  # found at a restart: it may answer what an earlier core asked
    warming_up: bool = False  # has used its device, and is still warming up
    used_device: bool = False  # has asked for memory or for a turn
    found_exclusive: str | None = None  # why it must have its device to itself, as it turned out
    devices: tuple[DeviceId, ...] = ()  # those of a job for several, its own first; whole devices: held now
    trusted: bool = True  # what is believed about its memory counts
    # Whole devices
    devices_us: Micros | None = None  # since when it computes there; None: it holds none
    leaving: bool = False  # was asked to give them back
    order: Order = ((), 0, 0)  # its place among those that run and those that wait
    # Memory
    limit: Memory = NOTHING
    reserved: Memory = NOTHING
    pending: Mapping[MemoryClass, Request] = MappingProxyType({})
    residency: Residency = RESIDENT
    wait: WaitState = WaitState.NONE
    promised_us: Micros | None = None  # when it got memory that others had to leave: it keeps that until it is used
    stays_us: Micros = 0  # it came back at a price: it stays while it wants to compute and has attained less than this
    restoring_us: Micros = 0  # so long it takes at the beginning of its next turn, or took in the present one
    unmovable_us: Micros = 0  # it could not be offloaded; not to be tried again before
    immovable: str | None = None  # why its memory cannot be offloaded at all
    kept: int = 0  # bytes of the host store that are kept for it
    # Turns
    turn: Turn = IDLE
    wanted_us: Micros = 0  # when it last began to wait
    demand: Demand | None = None  # of a service: what it wants its turn for, or has it for
    weights_unplaced: bool = False  # it has not been promised its weights yet
    busy: bool = False  # an engine: it has requests
    wished: bool = False  # an engine: its turn is wanted on its behalf; it has not asked itself
    let_go: bool = False  # an engine: its requests ended during its turn
    served: bool = False  # an engine: a front has it ready, and starts it again when it has ended
    stop_asked_us: Micros | None = None  # an engine: when its front was asked to end it; None: not since it was busy
    idle_since_us: Micros = 0
    gave_way: bool = False  # its last turn ended so that others could have its memory
    released_us: Micros | None = None  # when it lost its turn because it was off the device
    released_grace_us: Micros = 0  # and for how long it had been off by then
    grace_exponent: int = 0  # its grace is the usual one times two to this power
    # Figures
    usage: Usage = NO_USAGE
    attained_us: Micros = 0
    iteration_us: Micros | None = None
    virtual_us: Micros = 0
    time_levelled: bool = False  # has been levelled with the jobs of its lane once
    measured: bool = False
    window: MeasurementWindow | None = None  # while it is measured who slows it
    grew_at_us: Micros = 0  # device time it had attained when it last asked for memory
    history: deque[tuple[Micros, object]]
    cached: JobView | None = None
    cached_us: Micros = 0  # when it was made; -1: it stays right
    cached_requirements: Requirements | None = None
    tell: Callable[[], None] | None = None  # while it is on a device: says that the device's jobs have changed

    def __init__(self, number: JobId, spec: JobSpec, arrival: int, submitted_us: Micros) -> None:
        history: deque[tuple[Micros, object]] = deque(maxlen=HISTORY)
        self.__dict__.update(id=number, spec=spec, arrival=arrival, submitted_us=submitted_us, history=history)

    def __setattr__(self, name: str, value: object) -> None:
        # Straight into the dictionary: this runs many times per event.
        values = self.__dict__
        values[name] = value
        if name not in _ABOUT_CACHE:
            values["cached"] = values["cached_requirements"] = None
            if self.tell is not None:
                self.tell()

    def set(self, **changes: object) -> None:
        """Set several attributes in one step, where that happens often."""
        self.__dict__.update(changes, cached=None, cached_requirements=None)
        if self.tell is not None:
            self.tell()

    def begin_again(self, **changes: object) -> None:
        """Reset the job to what it was when it was submitted, all but ``changes``."""
        first = {name: self.__dict__[name] for name in ("id", "arrival", "submitted_us", "history")}
        self.__dict__.clear()
        self.__dict__.update(first, **changes)

    @property
    def number(self) -> str:
        """The job's name for people (`job_number`)."""
        return job_number(self.id, self.spec.array, self.spec.index)

    @property
    def held_back(self) -> bool:
        """Whether the job may not be placed yet, on whatever device."""
        return bool(self.barred or self.pause_us or self.no_place)

    @property
    def barred(self) -> bool:
        """Whether a user, other jobs or a time keep the job from being placed: then it takes no place of its array."""
        return bool(self.unmet or self.too_early or self.spec.held_by is not None or self.paused)

    @property
    def paused(self) -> bool:
        """Whether a user keeps the job off its device.  A job that is being stopped goes on to its end."""
        return self.spec.paused_by is not None and self.phase not in (JobPhase.STOPPING, JobPhase.ENDED)

    def paused_until(self, what: str) -> str:
        """Say who has paused the job, and what lets it do ``what`` ("start"), for people."""
        if self.spec.paused_by == STOP_SIGNAL:
            return f"its process has been stopped by a signal; SIGCONT (scontrol resume, fg) lets it {what}"
        return f"paused by {self.spec.paused_by}; carpool resume {self.number} lets it {what}"

    @property
    def recovering(self) -> bool:
        """Whether the job's last attempt ran out of memory: then it comes before all others."""
        return bool(self.past) and self.past[-1].out_of_memory

    @property
    def memory_known(self) -> bool:
        """Whether anything is known of the job's memory: it was measured, here or earlier, or a hint was given."""
        return self.measured or (self.trusted and self.spec.estimate is not None)

    @property
    def wanted(self) -> bool:
        """Whether the job waits for a turn."""
        return self.turn.state is TurnState.WAITING

    @property
    def holds(self) -> bool:
        """Whether the job has the turn of its lane."""
        return self.turn.state is TurnState.HOLDING

    @property
    def urgent(self) -> bool:
        """Whether the job needs a turn, or to go on with its turn, to handle a signal."""
        return self.turn.urgent

    @property
    def turn_key(self) -> TurnKey | None:
        """The job's place in the queue of its lane; None: it is not there."""
        return self.turn.key

    @property
    def offloaded(self) -> bool:
        """Whether ``stored`` has to be granted again before the job's next turn."""
        return self.residency.aside

    @property
    def offload_asked(self) -> bool:
        """Whether the answer to the command `Offload` is still to come."""
        return self.residency.leaving

    @property
    def packs(self) -> bool:
        """Whether the job waits for persistent memory instead of all of its limits."""
        return any(request.packs for request in self.pending.values())

    @property
    def stored(self) -> Memory:
        """The job's limits before they were lowered; nothing if they were not."""
        return self.residency.stored

    @property
    def suspends(self) -> bool:
        """Whether the job is suspended between its turns, each of which has the whole device."""
        return self.spec.checkpoint

    @property
    def serves(self) -> bool:
        """Whether the job is a service."""
        return self.spec.service is not None

    @property
    def is_engine(self) -> bool:
        """Whether the job is a service that knows nothing of turns: see `core.turns.engines`."""
        return self.spec.service is not None and self.spec.service.engine

    @property
    def pinned(self) -> str | None:
        """Why the job's memory stays on its device; None: it may be moved out."""
        if self.immovable is None and self.is_pinned and not self.paused:
            return PINNED_ENGINE
        return self.immovable

    @property
    def is_pinned(self) -> bool:
        """Whether the job is an engine whose memory is to stay on its device."""
        return self.spec.service is not None and self.spec.service.pinned

    @property
    def rests(self) -> bool:
        """Whether the job is an engine without requests."""
        return self.is_engine and not self.busy

    @property
    def excludes(self) -> bool:
        """Whether no other job of the device computes during the job's turns: see `core.turns.order`."""
        return self.suspends or self.serves

    def carried(self, size: int) -> int:
        """Bytes to move where the job has ``size`` bytes; of a suspended job only what it really uses is moved."""
        return min(size, self.usage.persistent_live) if self.suspends else size

    @property
    def exclusive(self) -> bool:
        """Whether the job was submitted as one that shares its devices with no other job."""
        return self.spec.exclusive or self.spec.needs_several

    @property
    def requirements(self) -> Requirements:
        """The job's requirements, worked out once until the job changes."""
        found = self.cached_requirements
        if found is None:
            found = self.__dict__["cached_requirements"] = requirements_of(self)
        return found

    @property
    def estimate(self) -> Memory:
        """The memory to reserve for the job at its start."""
        return self.spec.estimate.memory if self.trusted and self.spec.estimate is not None else NOTHING


def requirements_of(job: Job) -> Requirements:
    """Work out what the job asks of devices as it is now; `Job.requirements` keeps the answer."""
    spec = job.spec
    return Requirements(
        account=spec.account,
        owner=spec.owner,
        device=spec.device,
        memory_known=job.memory_known,
        exclusive=spec.exclusive,
        gang=spec.gang,
        checkpoint=spec.checkpoint,
        outgrown=max((attempt.outgrown for attempt in job.past), default=0),
        guessed=spec.estimate is not None and spec.estimate.source == RECOVERY,
        serves=job.serves,
        engine=job.is_engine,
        group=spec.group,
        memory=NOTHING if spec.checkpoint else job.estimate,
    )
