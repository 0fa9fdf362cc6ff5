"""The mutable state behind the machine.  Only the modules of the core change it, and only inside `Machine.handle`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import MappingProxyType

from carpool.core.commands import Command
from carpool.core.model import (
    Allocation,
    Attempt,
    Demand,
    DeviceId,
    DeviceSpec,
    Engine,
    JobId,
    JobPhase,
    JobSpec,
    LaneId,
    Load,
    Memory,
    MemoryClass,
    Micros,
    Outcome,
    Oversubscribe,
    Reason,
    Settings,
    Usage,
)
from carpool.core.policies.base import Key, Policy
from carpool.core.policies.placement.base import PlacementPolicy
from carpool.core.policies.view import DeviceView, JobView, View
from carpool.core.state.slowdown_table import Paces
from carpool.core.state.timers import Timers

NOTHING = Memory()
NO_USAGE = Usage()
HISTORY = 16
#: Source of the estimate of a job that has run out of memory.
RECOVERY = "recovery"
#: So many ended jobs are kept as they were, for views and stories; of the others only the outcome.
KEPT_ENDED = 1000
#: (0 urgent | 1, the policy's key, number of the want, job)
TurnKey = tuple[int, Key, int, JobId]
#: The policy's key, 0 runs | 1 waits (queues only), a number that orders equal ones
Order = tuple[Key, int, int]
#: What decides whether a job fits: (owner, devices it insists on, is its memory known, is it exclusive, how many
#: devices it needs, engine, what it has outgrown, is its memory guessed after that, is it a service, its `JobSpec.kind`
#: where that can close devices), P and E.
Kind = tuple[tuple[int, object, bool, bool, int, Engine, int, bool, bool, str], int, int]


@dataclass(frozen=True, slots=True)
class Request:
    """A request for memory that waits."""

    memory_class: MemoryClass
    total: int
    sequence: int
    since_us: Micros


class Claim(Enum):
    """Where a job stands that needs more memory before it can go on."""

    NONE = "none"  # it does not, or nobody has looked yet
    MOVING = "moving"  # others are leaving for it
    BLOCKED = "blocked"  # who could leave computes, or comes first
    STORE = "store"  # who could leave finds no room in the host store
    TURNS = "turns"  # it needs that nobody computes: who does has to let go, and nobody else begins


_ABOUT_CACHE = ("cached", "cached_us", "claim")


@dataclass(slots=True)
class Stretch:
    """What a job computes in one company, see `core.metering.co_runners`."""

    company: str | None = None  # in its last turn: the kind beside it, "" alone; None: nobody knows
    since: Usage | None = None  # its counters where the stretch begins
    told_us: Micros = -1  # when its counters were told last, as far as they are still right
    cut: bool = False  # its last turn did not end at an iteration boundary


class Job:
    """One job.  Setting any attribute drops the cached view of it.

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
    unmet: frozenset[JobId] = frozenset()  # dependencies that have not ended
    past: tuple[Attempt, ...] = ()  # earlier starts that came to nothing
    denied: int = 0  # capacity of its device, if what it asked for last would not fit there even alone
    # Place
    device: DeviceId | None = None
    lane: LaneId | None = None
    placed: int = 0  # number of its placement; the largest came last
    started_us: Micros | None = None
    passed_over_us: Micros | None = None
    attached: bool = False
    was_attached: bool = False
    adopted: bool = False  # found at a restart: it may answer what an earlier core asked
    warms: bool = False  # has used its device, and is still warming up
    touched: bool = False  # has asked for memory or for a turn
    alone: str | None = None  # why it must have its device to itself
    devices: tuple[DeviceId, ...] = ()  # those of a job for several, its own first; whole devices: held now
    trusted: bool = True  # what is believed about its memory counts
    # Whole devices
    devices_us: Micros = 0  # since when it computes there
    leaving: bool = False  # was asked to give them back
    order: Order = ((), 0, 0)  # its place among those that run and those that wait
    # Memory
    limit: Memory = NOTHING
    reserved: Memory = NOTHING
    stored: Memory = NOTHING  # its limits before it was offloaded
    pending: Mapping[MemoryClass, Request] = MappingProxyType({})
    offload_asked: bool = False
    offloaded: bool = False  # ``stored`` has to be granted again before its next turn
    claim: Claim = Claim.NONE
    promised_us: Micros | None = (
        None  # when it got memory that others had to leave; until it has used it, it keeps that
    )
    stays_us: Micros = 0  # it came back at a price: it stays while it wants to compute and has attained less than this
    restoring_us: Micros = 0  # so long it takes at the beginning of its next turn, or took in the present one
    unmovable_us: Micros = 0  # it could not be offloaded; not to be tried again before
    immovable: str | None = None  # why it must never be offloaded
    kept: int = 0  # bytes of the host store that are kept for it
    # Turns
    wanted: bool = False
    wants_again: bool = False
    urgent: bool = False
    wanted_us: Micros = 0
    want_number: int = 0
    turn_key: TurnKey | None = None  # its place in the lane's queue
    demand: Demand | None = None  # of a service: what it wants its turn for, or has it for
    next_demand: Demand | None = None  # and what for the turn after that
    unplaced: bool = False  # it has not been promised its weights yet
    idle_since_us: Micros = 0
    gave_way: bool = False  # its last turn ended so that others could have its memory
    released_us: Micros | None = None  # when it lost its turn because it was off the device
    released_grace_us: Micros = 0  # and for how long it had been off by then
    patience: int = 0  # its grace is the usual one times two to this power
    # Figures
    usage: Usage = NO_USAGE
    attained_us: Micros = 0
    iteration_us: Micros | None = None
    virtual_us: Micros = 0
    levelled: bool = False  # has been levelled with the jobs of its lane once
    measured: bool = False
    stretch: Stretch | None = None  # while it is measured who slows it
    grew_at_us: Micros = 0  # device time it had attained when it last asked for memory
    history: deque[tuple[Micros, object]]
    cached: JobView | None = None
    cached_us: Micros = 0  # when it was made; -1: it stays right

    def __init__(self, number: JobId, spec: JobSpec, arrival: int, submitted_us: Micros) -> None:
        history: deque[tuple[Micros, object]] = deque(maxlen=HISTORY)
        self.__dict__.update(id=number, spec=spec, arrival=arrival, submitted_us=submitted_us, history=history)

    def __setattr__(self, name: str, value: object) -> None:
        # Straight into the dictionary: this runs many times per event.
        values = self.__dict__
        values[name] = value
        if name not in _ABOUT_CACHE:
            values["cached"] = None

    def set(self, **changes: object) -> None:
        """Several attributes in one step, where it happens often."""
        self.__dict__.update(changes, cached=None)

    def begin_again(self, **changes: object) -> None:
        """As it was when it was submitted, all but ``changes``."""
        first = {name: self.__dict__[name] for name in ("id", "arrival", "submitted_us", "history")}
        self.__dict__.clear()
        self.__dict__.update(first, **changes)

    @property
    def recovering(self) -> bool:
        """Whether its last attempt ran out of memory: it comes before all others, and has its device to itself."""
        return bool(self.past) and self.past[-1].out_of_memory

    @property
    def guessed(self) -> bool:
        """Whether its estimate was made from an attempt that ran out of memory, with room to spare."""
        return self.spec.estimate is not None and self.spec.estimate.source == RECOVERY

    @property
    def outgrown(self) -> int:
        """Bytes of the largest device that was too small for it alone."""
        return max((attempt.outgrown for attempt in self.past), default=0)

    @property
    def known(self) -> bool:
        """Whether anything is known of its memory: it was measured, here or earlier, or a hint was given."""
        return self.measured or (self.trusted and self.spec.estimate is not None)

    @property
    def lonely(self) -> bool:
        """Whether it was submitted as one that shares its devices with nobody."""
        return self.spec.exclusive or self.spec.gang > 1

    @property
    def estimate(self) -> Memory:
        """What to reserve for it at its start."""
        return self.spec.estimate.memory if self.trusted and self.spec.estimate is not None else NOTHING


class YieldAsked(IntEnum):
    NO = 0
    BOUNDARY = 1
    FORCED = 2


class Pause(IntEnum):
    """What a holder has been asked for the sake of a service, and has done."""

    NO = 0
    BOUNDARY = 1  # to pause at its next boundary
    FORCED = 2  # at once
    PAUSED = 3


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
    ahead: JobId | None = None  # it has given back a turn of which we have not yet heard that it was passed to it
    queue: list[TurnKey] = field(default_factory=list)
    yield_asked: YieldAsked = YieldAsked.NO
    for_memory: bool = False  # the yield was asked because memory is short, not because somebody wants the turn
    claimant: JobId | None = None  # a job elsewhere that needs the holder's memory
    watch_us: Micros | None = None  # the holder was told that it loses its turn after so long off the device
    forced_due: Micros = 0  # when the holder that has been asked will be forced
    due: tuple[JobId, Micros] | None = None  # when the turn is to be asked back, and for whom
    turn_us: Micros = 0  # start of the present turn
    turn_base_us: Micros = 0  # the holder's attained time at that moment
    pause: Pause = Pause.NO
    pause_us: Micros = 0  # since when the holder is asked to pause, or has paused
    latest_us: Micros = 0  # when it is forced to
    spared_us: Micros = 0  # it is not asked before: it had a signal to handle
    virtual_us: Micros = 0  # how far it has come; a newcomer that finds nobody present starts here
    history: deque[tuple[Micros, object]] = field(default_factory=lambda: deque(maxlen=HISTORY))


@dataclass(slots=True)
class Moved:
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


@dataclass(eq=False)
class Device:
    """``waiting`` holds the requests for memory in order; ``short`` says why nothing may be admitted."""

    spec: DeviceSpec
    position: int = 0  # 0, 1, 2 ... in the order in which devices were added
    last_placed: int = 0  # number of the last placement here
    jobs: set[JobId] = field(default_factory=set)
    lanes: set[LaneId] = field(default_factory=set)
    persistent: int = 0  # sum of persistent reservations
    lane_bytes: int = 0
    grower: JobId | None = None
    warm: set[JobId] = field(default_factory=set)
    waiting: list[tuple[int, JobId, MemoryClass]] = field(default_factory=list)
    claims: set[JobId] = field(default_factory=set)  # jobs that could not have the memory they need
    moved: Moved = field(default_factory=Moved)
    reservation: JobId | None = None
    short: JobId | None = None  # a job whose memory does not fit at present
    short_since_us: Micros = 0
    loners: list[JobId] = field(default_factory=list)  # jobs that must have it to themselves, the first one has it
    makes_way: bool = False  # the one that has it to itself waits for memory that the others have first to work off
    held_by: JobId | None = None  # a job for several devices has it to itself, and is seated on another
    guests: set[JobId] = field(
        default_factory=set
    )  # its jobs whose turns exclude all others: see `core.turns.exclusive_turns`
    guest: JobId | None = None  # that of them which has the whole device for its turn
    weights: dict[tuple[int, str], Weights] = field(default_factory=dict)  # of services, by owner and key
    weight_bytes: int = 0  # of those that are there
    weights_kept: int = 0  # of those of them that somebody uses, or is to
    peers: tuple[Lane, ...] = ()  # lanes of which somebody may compute, where ...
    crowd: int = 0  # ... so many; 0: nobody has looked
    excess: int = 0  # bytes beyond the capacity that were found at a restart
    foreign: int = 0  # bytes that are in use, but not by grant
    measured: bool = False  # whether there is telemetry of it at all
    answered: bool = False  # whether its load has ever been known
    load: Load | None = None  # what it does; None: nobody knows (any more)
    unmeasured_why: str = ""  # and why

    @property
    def model(self) -> str:
        """Jobs that compute beside each other do so alike on all devices for which this is the same."""
        return f"{self.spec.model} ({self.spec.sharing})"

    @property
    def alone(self) -> JobId | None:
        """The job that shares it with nobody."""
        return self.loners[0] if self.loners else self.held_by

    @property
    def idle(self) -> bool:
        """Whether no job is there."""
        return not self.jobs and self.held_by is None

    @property
    def usable(self) -> int:
        """Bytes that jobs can have together at present."""
        return max(0, self.spec.capacity - self.foreign)

    @property
    def headroom(self) -> int:
        """Bytes that nobody has; negative: others have taken memory that was promised to jobs.

        Weights that nobody uses lie in free memory: whoever takes it makes them leave (`core.turns.weights`).
        """
        return self.usable - self.persistent - self.lane_bytes - self.weights_kept

    @property
    def free(self) -> int:
        return max(0, self.headroom)

    @property
    def oversubscribed(self) -> bool:
        """Whether its jobs may need more memory together than it has."""
        return self.spec.oversubscribe is not Oversubscribe.OFF


@dataclass(eq=False)
class WholeDevices:
    """Who has devices to itself, and who waits for them.

    Jobs that wait lie in one heap for each number of devices that they need; entries of jobs that do not wait any
    more, or at another place, are skipped.
    """

    free: list[int] = field(default_factory=list)  # heap of positions in ``names``
    names: list[DeviceId] = field(default_factory=list)
    places: dict[DeviceId, int] = field(default_factory=dict)
    running: dict[JobId, Job] = field(default_factory=dict)  # hold their devices, or are to get them
    newcomers: list[Job] = field(default_factory=list)  # wait, and have no place in the order yet
    due: list[Job] = field(default_factory=list)  # are to get devices that others have been asked to leave
    waiting: dict[int, list[tuple[Order, Job]]] = field(default_factory=dict)
    stopping: dict[JobId, Job] = field(default_factory=dict)  # cancelled, and still on their devices
    dirty: bool = False  # a scheduling pass is due at this instant
    last: int = 0  # the largest and
    first: int = 0  # the smallest number given out to order equal keys


class State:
    """Everything the core knows."""

    def __init__(self, settings: Settings, policy: Policy, placement: PlacementPolicy) -> None:
        self.settings = settings
        self.policy = policy
        self.placement = placement
        self.now: Micros = 0
        self.jobs: dict[JobId, Job] = {}  # all that have not ended, and the last ones that have
        self.ended: deque[JobId] = deque()  # those of ``jobs`` that have ended, in order
        self.forgotten: dict[JobId, Outcome] = {}  # ended long ago: late events and dependencies still name them
        self.arrivals = 0
        self.lanes: dict[LaneId, Lane] = {}
        self.devices: dict[DeviceId, Device] = {}
        self.timers = Timers()
        self.commands: list[Command] = []
        self.lazy: View | None = None  # the view that policies get, while it is valid
        self.queue: list[tuple[Key, int, JobId]] = []  # ready jobs in order of admission
        self.kinds: Counter[Kind] = Counter()  # of the queued jobs
        self.device_views: dict[DeviceId, DeviceView] | None = None  # while the queue is looked at
        self.gathering: JobId | None = None  # a job for several devices that some, but not all, are kept for
        self.not_passed: deque[Job] = deque()  # queued jobs by arrival that no later one has overtaken
        self.due: list[JobId] = []  # passed over for too long, without a reservation
        self.dependents: dict[JobId, list[JobId]] = {}
        self.whole = WholeDevices() if settings.allocation is Allocation.DEVICES else None
        self.restarting = False
        self.next_lane: LaneId = 1
        self.sequence = 0
        self.paces = Paces()
        self.store_kept = 0  # bytes of the host store that are kept for jobs
        # What this event has touched
        self.admit_all = False
        self.newcomers: list[JobId] = []
        self.dirty_lanes: dict[LaneId, None] = {}
        self.dirty_devices: dict[DeviceId, None] = {}
        self.company_changed: dict[DeviceId, None] = {}
        #: The time quantum of each device; of None: where there is no device.
        self.quanta: dict[DeviceId | None, Micros] = {}
        self.settle_quanta()

    def settle_quanta(self) -> None:
        """The device's own quantum, else the one in the settings, else the policy's."""
        usual = self.settings.quantum_us
        usual = self.policy.quantum_us if usual is None else usual
        self.quanta.clear()
        self.quanta[None] = usual
        for name, device in self.devices.items():
            own = device.spec.quantum_us
            self.quanta[name] = usual if own is None else own

    @property
    def backfill(self) -> bool:
        """Whether later jobs may go ahead of one that does not fit."""
        setting = self.settings.backfill
        return self.policy.backfill if setting is None else bool(setting)

    def number(self) -> int:
        """The next number of the one sequence that orders what happens at equal times."""
        self.sequence += 1
        return self.sequence

    def emit(self, command: Command) -> None:
        self.commands.append(command)

    def touch_lane(self, lane: LaneId | None) -> None:
        if lane is not None:
            self.dirty_lanes[lane] = None

    def touch_device(self, device: DeviceId | None) -> None:
        if device is not None:
            self.dirty_devices[device] = None

    def lane_of(self, job: Job) -> Lane | None:
        return self.lanes[job.lane] if job.lane is not None else None

    def device_of(self, job: Job) -> Device | None:
        return self.devices[job.device] if job.device is not None else None

    def holds(self, job: Job) -> bool:
        return job.lane is not None and self.lanes[job.lane].holder == job.id

    def held_off(self, job: Job) -> bool:
        """Whether it gets no turn, because another has the device to itself."""
        device = self.device_of(job)
        return device is not None and device.alone not in (None, job.id) and not device.makes_way
