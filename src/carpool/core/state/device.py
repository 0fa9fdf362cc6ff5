"""Devices and their lanes: the jobs there, the memory reserved for them, and their turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import InitVar, dataclass, field
from enum import Enum, IntEnum
from functools import partial

from carpool.core.model import DeviceId, DeviceSpec, JobId, LaneId, Load, MemoryClass, Micros, Oversubscribe
from carpool.core.state.job import HISTORY
from carpool.core.state.seat_states import UNDISTURBED, Preempt, TurnKey

#: Programs beside Carpool find this part of the device free beyond what they use, so that they can grow.
GROWTH_FRACTION = 32


class YieldAsked(IntEnum):
    """The state of the request to the holder to end its turn for jobs that are not services."""

    NO = 0
    BOUNDARY = 1
    FORCED = 2


@dataclass(eq=False)
class Lane:
    """``queue`` holds the jobs that could take the turn at once, best first."""

    id: LaneId
    device: DeviceId
    owner: int
    size: int = 0
    serves: bool = False  # its jobs are services
    jobs: set[JobId] = field(default_factory=set)
    holder: JobId | None = None
    successor: JobId | None = None
    ahead: JobId | None = None  # it gave back a turn before the core heard that it was passed to it
    queue: list[TurnKey] = field(default_factory=list)
    yield_asked: YieldAsked = YieldAsked.NO
    for_memory: bool = False  # the yield was asked because memory is short, not because another job wants the turn
    waiter: JobId | None = None  # a job elsewhere that needs the holder's memory
    reclaimed: bool = False  # other programs need the holder's memory (`core.memory.clearing`)
    watch_us: Micros | None = None  # the holder loses its turn after so long off the device, as it was told
    forced_due: Micros = 0  # when the holder that has been asked will be forced
    due: tuple[JobId, Micros] | None = None  # when the turn is to be asked back, and for whom
    turn_us: Micros = 0  # start of the present turn
    turn_base_us: Micros = 0  # the holder's attained time at that moment
    preempt: Preempt = UNDISTURBED  # how far services have preempted the holder
    protected_until_us: Micros = 0  # no holder is preempted before: one had a signal to handle
    virtual_us: Micros = 0  # how far it has come; a newcomer to a lane without other jobs starts here
    history: deque[tuple[Micros, object]] = field(default_factory=lambda: deque(maxlen=HISTORY))


@dataclass(slots=True)
class TransferTotals:
    """Bytes moved to and from the host store, and the time it took; older moves count less and less."""

    out_bytes: int = 0
    out_us: Micros = 0
    in_bytes: int = 0
    in_us: Micros = 0


@dataclass(eq=False)
class Weights:
    """Weights of services on a device, or known from an earlier want."""

    owner: int
    key: str
    size: int
    reload_us: Micros
    number: int  # orders equal ones
    resident: bool = False
    there_us: Micros = 0  # when they have been copied, as far as is known
    rate: int = 0  # how often they are wanted: see `core.turns.weights`
    rated_us: Micros = 0
    users: set[JobId] = field(default_factory=set)  # services that compute with them, or are to


class ExclusiveReason(Enum):
    """The reason why a job shares a device with no other job."""

    SUBMITTED = "submitted"  # as exclusive, or for several devices
    FOUND = "found"  # it turned out when the job ran already, perhaps beside others: `Job.found_exclusive` says why
    SEATED_ELSEWHERE = "seated elsewhere"  # the device is one of several that the job has, and not that of its lane


@dataclass(frozen=True, slots=True)
class ExclusiveUse:
    """A job that has a device to itself, or is to have it when those that come before it are gone."""

    job: JobId
    reason: ExclusiveReason


@dataclass(slots=True)
class JobContext:
    """The CUDA context of a started job: device memory that its process takes beside its grants."""

    due: int  # bytes of it that are still to come
    seen: int = 0  # bytes that have come since the job was started
    alone: bool = True  # no other job has come or left meanwhile: what has come is its own
    whole: bool = False  # nothing more of it is expected
    turns: int = 0  # that the job, a service, has had since


@dataclass(eq=False)
class Device:
    """``requests`` holds the requests for memory in order; ``short`` says why nothing may be admitted."""

    spec: DeviceSpec
    position: int = 0  # 0, 1, 2 ... in the order in which devices were added
    last_placed: int = 0  # number of the last placement here
    jobs: set[JobId] = field(default_factory=set)
    lanes: set[LaneId] = field(default_factory=set)
    persistent: int = 0  # sum of persistent reservations
    lane_bytes: int = 0
    grower: JobId | None = None
    warming_up: set[JobId] = field(default_factory=set)
    requests: list[tuple[int, JobId, MemoryClass]] = field(default_factory=list)
    waiters: set[JobId] = field(default_factory=set)  # jobs that could not have the memory they need
    moved: TransferTotals = field(default_factory=TransferTotals)
    reservation: JobId | None = None
    short: JobId | None = None  # a job whose memory does not fit at present
    short_since_us: Micros = 0
    exclusive_to: list[ExclusiveUse] = field(default_factory=list)  # the first one has it to itself
    exclusive_waived: bool = False  # it waits for memory that others must free: meanwhile they compute
    excluding: set[JobId] = field(default_factory=set)  # its jobs whose turns exclude all others (`Job.excludes`)
    exclusive_turn: JobId | None = None  # the one of these that has the whole device for its turn
    engine_debt_us: Micros = 0  # what engines have computed beyond their share: see `core.turns.engines` ...
    engine_debt_at_us: Micros = 0  # ... at this time
    recess_until_us: Micros = 0  # before then others have a quantum, and no turn of an engine begins ...
    recess_of: JobId | None = None  # ... of this one, which has no requests; None: of none such
    recess_of_busy: bool = False  # ... that has requests
    recess_unused: bool = False  # no other job has begun a turn in it yet
    weights: dict[tuple[int, str], Weights] = field(default_factory=dict)  # of services, by owner and key
    weight_bytes: int = 0  # of weights that are on the device
    weights_kept: int = 0  # of these: bytes that a service uses, or is to
    co_runners: tuple[Lane, ...] = ()  # lanes of which a job may compute, where ...
    co_runner_count: int = 0  # ... so many; 0: to be counted
    excess: int = 0  # bytes beyond the capacity that were found at a restart
    unmanaged: int = 0  # bytes that are in use, but not by grant
    others: int = 0  # of them: bytes of programs that are not Carpool's, as far as that is known
    spare: int = 0  # bytes that are free beside the capacity
    context_seen: int = 0  # bytes of the largest context that has been seen; 0: none has
    contexts: dict[JobId, JobContext] = field(default_factory=dict)  # in the order in which the jobs were started
    expected: JobId | None = None  # a queued job for whose context room is being made
    measured: bool = False  # whether there is telemetry of it at all
    answered: bool = False  # whether its load has ever been known
    load: Load | None = None  # what it does; None: unknown (by now)
    unmeasured_why: str = ""  # and why
    said: InitVar[set[DeviceId] | None] = None  # names of devices that have changed

    def __post_init__(self, said: set[DeviceId] | None) -> None:
        if said is not None:
            self.__dict__["changed"] = partial(said.add, self.spec.id)

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__[name] = value
        self.changed()

    def changed(self) -> None:
        """Say that the device has changed: who changes one of its sets, or one of its jobs, has to."""

    @property
    def model(self) -> str:
        """The model and the sharing: on devices with the same ones, co-runners slow each other alike."""
        return f"{self.spec.model} ({self.spec.sharing})"

    @property
    def exclusive_holder(self) -> JobId | None:
        """The job that has the device to itself; None: there is none."""
        return self.exclusive_to[0].job if self.exclusive_to else None

    @property
    def exclusive_found(self) -> bool:
        """Whether that job was not submitted as exclusive: only its seat says that it needs the device to itself."""
        return bool(self.exclusive_to) and self.exclusive_to[0].reason is ExclusiveReason.FOUND

    @property
    def exclusive_jobs(self) -> list[JobId]:
        """Jobs seated here that must have the device to themselves, in the order in which they have it."""
        return [use.job for use in self.exclusive_to if use.reason is not ExclusiveReason.SEATED_ELSEWHERE]

    @property
    def idle(self) -> bool:
        """Whether no job is on the device, nor has it to itself."""
        return not self.jobs and not self.exclusive_to

    @property
    def context(self) -> int:
        """Bytes that one more job is expected to take of the device beside its grants; 0: none."""
        return self.context_seen or self.spec.context

    def context_of(self, job: JobId) -> int:
        """Bytes of the capacity that the job's own context takes, also when all others have left."""
        return self._in_capacity([self.contexts[job]] if job in self.contexts else [])

    def contexts_beside(self, job: JobId) -> int:
        """Bytes of the capacity that the contexts of all other jobs take beside it."""
        return self._in_capacity(self.contexts.values()) - self.context_of(job)

    def _in_capacity(self, contexts: Collection[JobContext]) -> int:
        due = sum(context.due for context in contexts)
        seen = sum(context.seen for context in contexts)
        return min(due + seen, max(0, self.unmanaged + due - self.spare))

    @property
    def contexts_due(self) -> int:
        """Bytes of contexts that are still to come."""
        if not self.contexts and self.expected is None:
            return 0
        awaited = self.context if self.expected is not None else 0
        return awaited + sum(context.due for context in self.contexts.values())

    @property
    def usable(self) -> int:
        """Bytes that jobs can have together at present."""
        if not self.contexts and self.expected is None and not self.others:  # asked often: without the sums
            return max(0, self.spec.capacity - max(self.spec.reserve, self.unmanaged))
        to_grow = self.spec.capacity // GROWTH_FRACTION if self.others else 0
        return max(0, self.left(to_grow))

    def left(self, to_grow: int = 0, context: int = 0) -> int:
        """Bytes of the capacity beside what is in use, and due, otherwise; ``context``: of one more job."""
        due = max(0, self.contexts_due + context - self.spare)
        return self.spec.capacity - max(self.spec.reserve, self.unmanaged + due + to_grow)

    @property
    def with_others(self) -> bool:
        """Whether other programs use the device, or some of it is kept for them."""
        return bool(self.spec.reserve or self.others)

    @property
    def promised(self) -> int:
        """Bytes that jobs have, with the weights that services use."""
        return self.persistent + self.lane_bytes + self.weights_kept

    @property
    def headroom(self) -> int:
        """Bytes that no job has; negative: others have taken memory that was promised to jobs.

        Weights that no service uses lie in free memory: a job that takes it makes them leave (`core.turns.weights`).
        """
        return self.usable - self.promised

    @property
    def free(self) -> int:
        """Bytes that can be reserved at once: the headroom, worked out here because it is asked for most often."""
        return max(0, self.usable - self.persistent - self.lane_bytes - self.weights_kept)

    @property
    def shortfall(self) -> int:
        """Bytes that jobs have beyond what other programs leave them: jobs are evicted until it is 0.

        What other programs may still need is kept free of new grants, but no job is evicted for that part.  Nor is one
        for what Carpool's own jobs have beside their grants, except for contexts that are due: jobs would wait for what
        they have.
        """
        if not (self.with_others or self.contexts_due):
            return 0
        return max(0, self.promised - self.left())

    @property
    def oversubscribed(self) -> bool:
        """Whether the device's jobs may need more memory together than it has."""
        return self.spec.oversubscribe is not Oversubscribe.OFF
