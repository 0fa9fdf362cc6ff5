"""Values that the core, the wire protocol and both drivers share.

Units: sizes are bytes, times are integer microseconds (``*_us``) on one monotonic axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum

JobId = int
LaneId = int
DeviceId = str
Micros = int

MIB = 1 << 20
GIB = 1 << 30

#: In place of a user who pauses a job: its process has been stopped (SIGSTOP, SIGTSTP), and its memory leaves as well.
STOP_SIGNAL = "a stop signal"
#: An engine keeps its turn for so long after its last request: the next one of the same client may be on its way.
ENGINE_LINGER_US = 1000


#: Why the memory of an engine stays on its device.
PINNED_ENGINE = "it is a pinned engine"


class JobPhase(StrEnum):
    """The phase of a job's life.  Its end has a separate type: `Outcome`."""

    QUEUED = "queued"  # accepted, no process yet
    STARTING = "starting"  # placed on a device, its process is being started
    RUNNING = "running"  # its process runs
    STOPPING = "stopping"  # cancelled, its processes have been signalled
    ENDED = "ended"


class Outcome(StrEnum):
    """The way in which a job ended."""

    SUCCEEDED = "succeeded"  # exit code 0
    FAILED = "failed"  # exit code other than 0, or killed by a signal that Carpool did not send
    CANCELLED = "cancelled"
    LOST = "lost"  # its supervisor vanished; the exit code is unknown
    ENDED = "ended"  # its process, which Carpool had not started, has ended; the exit code is unknown
    REFUSED = "refused"  # could never run: larger than every device, or a dependency failed
    TIMED_OUT = "timed_out"  # it reached its time limit, and was stopped

    @property
    def words(self) -> str:
        """The outcome as words, for people."""
        return self.value.replace("_", " ")


class Dependency(StrEnum):
    """A required end of another job before a job may start.  The names are Slurm's, without ``after``."""

    OK = "ok"  # it succeeds
    ANY = "any"  # it ends, however
    NOTOK = "notok"  # it ends without success

    def met_by(self, outcome: Outcome) -> bool:
        """Whether a job that ended like that is what was waited for."""
        return self is Dependency.ANY or (outcome is Outcome.SUCCEEDED) is (self is Dependency.OK)


class MemoryClass(StrEnum):
    """Persistent memory outlives iterations; ephemeral memory belongs to one iteration (Salus, § 3)."""

    PERSISTENT = "persistent"
    EPHEMERAL = "ephemeral"


class Allocation(StrEnum):
    """The unit in which devices are given to jobs."""

    LANES = "lanes"  # memory of one device, and turns
    DEVICES = "devices"  # as many whole devices as it needs, all at once


class Oversubscribe(StrEnum):
    """The permission for jobs to need more memory together than a device has."""

    OFF = "off"  # a job that does not fit waits; memory is moved only to break a deadlock
    AUTO = "auto"  # memory that does not fit is moved to the host store
    ON = "on"  # the same, and never two lanes of one owner side by side


class Sharing(StrEnum):
    """The way in which jobs of several lanes compute on one device at the same time."""

    CONCURRENT = "concurrent"  # each in its own process (the host device)
    TIMESLICE = "timeslice"  # the driver gives slices of the whole device in turn (CUDA contexts)
    MPS = "mps"  # in a server that they share: jobs of one user only, and one's fault ends all


class Serving(IntEnum):
    """The order of services that want to compute, as in the setting ``serving``.  Ties go to the first that came."""

    EDF = 0  # earliest deadline first; without a deadline last
    FCFS = 1  # first come, first served
    PRIORITY = 2  # `Service.priority`, larger first


class Cause(StrEnum):
    """The cause of a turn's end."""

    BOUNDARY = "boundary"  # the job reached an iteration boundary and gave way
    EARLY = "early"  # the job was off the device for longer than the grace
    FORCED = "forced"  # taken at an arbitrary instruction
    EXIT = "exit"  # the process is gone


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per class: P and E of the design."""

    persistent: int = 0
    ephemeral: int = 0

    @property
    def total(self) -> int:
        """The bytes of both classes."""
        return self.persistent + self.ephemeral


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of a job's memory and length, which counts until the job has been measured."""

    memory: Memory
    source: str  # "hint" | "history" | "recovery" | "array", or the name of an estimator
    iteration_us: Micros | None = None
    iterations: int | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """Makes a job a worker of inference services: it comes before all that are none, and has a lane without them."""

    priority: int = 100  # larger is more; matters where the setting ``serving`` says so
    engine: bool = False  # it does not ask for turns itself: see `core.turns.engines`
    pinned: bool = False  # its memory is not moved out for others: only while a user has paused it


@dataclass(frozen=True, slots=True)
class Demand:
    """One batch of requests, for which a service wants its turn.  Raises ValueError for values that make no sense."""

    weights: str  # key of the weights; those of one key and owner never change
    size: int  # their bytes
    reload_us: Micros  # what it takes to copy them to the device
    compute_us: Micros = 0  # how long the batch is expected to compute
    deadline_us: Micros | None = None  # when it has to be done, on the core's axis of time; None: no matter when

    def __post_init__(self) -> None:
        if min(self.size, self.reload_us, self.compute_us) < 0:
            raise ValueError(f"{self}: size and times must be at least 0")


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A submission as the core knows it.  Commands, directories and environments stay outside."""

    owner: int  # uid
    name: str = ""
    kind: str = ""  # jobs of one kind do the same work (see `core.metering.co_runners`); empty: unknown
    iterations: int | None = None  # declared by --iterations
    duration_us: Micros | None = None  # declared by --expect: device time expected in total
    weight: int = 100  # share under `fair`; larger is more; --weight
    after: tuple[JobId, ...] = ()  # start only when these have succeeded
    device: DeviceId | tuple[DeviceId, ...] | None = None  # only this device, or one of these
    gang: int = 1  # devices that it needs, all at once, and shares with no other job
    exclusive: bool = False  # shares its device with no other job
    checkpoint: bool = False  # the driver suspends it between its turns, each of which has the whole device
    estimate: Estimate | None = None
    retries: int = 0  # so often it is started again after a failure that is not for want of memory; --retries
    recover: bool = True  # it may be started again after it has run out of memory
    service: Service | None = None
    retry_pause_us: Micros = 0  # before the first of its ``retries``; twice as long before each further one
    after_any: tuple[JobId, ...] = ()  # start only when these have ended
    after_notok: tuple[JobId, ...] = ()  # start only when these have ended without success
    begin_us: Micros | None = None  # not to be placed before, on the core's axis of time
    held_by: str | None = None  # who keeps it from being placed, for people; None: no user
    time_us: Micros | None = None  # an attempt is stopped when it has run for this long
    device_time_us: Micros | None = None  # an attempt is stopped when it has had so much device time
    limit_signal: int = 0  # signal before the end of ``time_us``, and of ``device_time_us``; 0: none
    limit_signal_us: Micros = 0  # so long before
    paused_by: str | None = None  # who keeps it off its device, for people, or `STOP_SIGNAL`; None: no user
    array: JobId | None = None  # it is an element of this array; --array
    index: int | None = None  # which one, for people
    at_most: int = 0  # so many elements of its array run at once; 0: as many as find room
    group: str = ""  # of which so many jobs run at once as `Settings.named_limits` says; empty: none
    user: str = ""  # its owner's name, for people; empty: it has none
    person: int | None = None  # uid of the user who has the owner's uid as a subordinate uid (``/etc/subuid``)

    @property
    def needs_several(self) -> bool:
        """Whether the job needs several devices, all at once."""
        return self.gang > 1

    @property
    def account(self) -> int:
        """The uid under which limits and use are counted: a user with subordinate uids has them once."""
        return self.owner if self.person is None else self.person

    @property
    def warning(self) -> tuple[Micros | None, int, Micros]:
        """The time limit, and the signal before it: what a job is warned of once."""
        return self.time_us, self.limit_signal, self.limit_signal_us

    @property
    def device_time_warning(self) -> tuple[Micros | None, int, Micros]:
        """The limit of device time, and the signal before it: what a job is warned of once."""
        return self.device_time_us, self.limit_signal, self.limit_signal_us

    @property
    def dependencies(self) -> tuple[tuple[Dependency, tuple[JobId, ...]], ...]:
        """The jobs that this one starts after, by how they have to end."""
        return (
            (Dependency.OK, self.after),
            (Dependency.ANY, self.after_any),
            (Dependency.NOTOK, self.after_notok),
        )


_SPEC_DEFAULTS = {part.name: part.default for part in fields(JobSpec)}


def given(spec: JobSpec) -> dict[str, object]:
    """Return what a specification says beyond the defaults, by field."""
    values = {name: getattr(spec, name) for name in _SPEC_DEFAULTS}
    return {name: value for name, value in values.items() if value != _SPEC_DEFAULTS[name]}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A start of a job that came to nothing, and after which it has been, or could have been, started again."""

    text: str  # how it ended, for people
    device: DeviceId | None = None
    out_of_memory: bool = False
    outgrown: int = 0  # bytes: capacity of the device that it had to itself, and that was not enough; 0: it had none
    before_memory: bool = False  # it ran out before it had asked for any: the device had no room for its context


def alone_after(past: Iterable[Attempt]) -> bool:
    """Whether these attempts make a job exclusive: two ran out of memory, or one after it had asked for some."""
    failed = [attempt.before_memory for attempt in past if attempt.out_of_memory]
    return len(failed) > 1 or failed == [False]


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device as the core sees it."""

    id: DeviceId
    capacity: int  # bytes that lanes and persistent arenas may hold together
    max_lanes: int | None = None  # None: as the policy says
    quantum_us: Micros | None = None  # None: as the settings say
    oversubscribe: Oversubscribe = Oversubscribe.AUTO
    sharing: Sharing = Sharing.CONCURRENT
    checkpoint: bool = False  # checkpoint jobs may run there
    pins: bool = False  # memory moves to pages of the host store that are pinned first
    model: str = ""  # devices of one model are equally fast
    drained: str = ""  # why no job is placed there, as in "drained by alice"; empty: jobs are
    reserve: int = 0  # bytes of the capacity that are kept for other programs, whether those use them or not
    context: int = 0  # bytes that a job takes by using the device at all, until it is known how many; 0: none


@dataclass(frozen=True, slots=True)
class Usage:
    """A job's own counters, read from its seat.  All totals since the job's first device use."""

    persistent_live: int = 0
    persistent_peak: int = 0
    ephemeral_live: int = 0
    ephemeral_peak: int = 0  # the extent its ephemeral arena has needed so far (E)
    iterations: int = 0
    device_us: Micros = 0  # time in which it held a turn
    progress_done: int = 0
    progress_total: int = 0
    switch_cost_us: Micros = 0  # measured cost of one switch of this job (revoke + grant)
    residue: int = 0  # bytes saved at the last switch
    stored: int = 0  # persistent bytes that are in the host store
    kept: int = 0  # bytes of host memory that its store occupies, also while nothing is in it
    out_bytes: int = 0  # offloaded in all, and the time that took
    out_us: Micros = 0
    in_bytes: int = 0  # restored in all, and the time that took
    in_us: Micros = 0
    fixed: int = 0  # bytes of device memory that it has from the driver itself: not by grant


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a device over the telemetry window, in millionths; None: it has no such counter."""

    active_ppm: int  # mean of SMACT
    risk_active_ppm: int  # `core.placement.filters.collocation` of SMACT, and so on
    risk_occupancy_ppm: int | None = None
    risk_dram_ppm: int | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason of a wait or a refusal.  ``code`` is stable, ``text`` is for people."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the core that an operator may change on the running daemon."""

    policy: str = "fair"  # who computes next; changed by name, not as a setting (see policies.md)
    placement: str = "magm"  # which device a job is placed on; changed by name, not as a setting (see placement.md)
    allocation: Allocation = Allocation.LANES  # fixed by the driver
    backfill: int | None = (
        None  # 1: later jobs that fit start before one that does not; 0: never; None: the policy's choice
    )
    quantum_us: Micros | None = None  # shortest turn, while other jobs wait; None: the policy's
    max_switch_share_ppm: int = 20_000  # largest share of a turn that the switch to it may cost (2 %)
    max_move_share_ppm: int = 50_000  # largest share of a turn that moving memory may cost (5 %)
    host_store: int | None = None  # host memory for job memory that is moved out; None: unlimited
    grace_us: Micros = 20_000  # while others wait, a turn ends early if its job has not used the device for this long
    forced_after_us: Micros = 10_000_000  # a job that is asked for its turn loses it by force after this long
    reserve_after_us: Micros = 60_000_000  # a job passed over for this long gets a reservation
    growth_step: int = 4 * MIB  # memory grants are multiples of this
    max_lanes: int | None = None  # most lanes per device; None: as many as the policy opens
    placement_strict: int = 0  # devices that fail the conditions for collocation: 0: are tried last; 1: are not used
    margin: int | None = None  # bytes to stay free on a shared device; None: 2 GiB or a twentieth, if less
    max_jobs: int | None = None  # most jobs per device; None: unlimited
    use_estimates: int = 1  # 1: hints and earlier runs count when a job is placed; 0: they are ignored
    refuse_growth: int = 0  # 1: memory requests that do not fit now fail, as without Carpool; 0: they wait
    warm_limit: int = 4  # most jobs per device that are warming up at a time
    warm_window_us: Micros = 0  # a new job warms up for this long after first use; 0: unknown jobs only, until then
    warm_timeout_us: Micros = 10_000_000  # warm-up of a job that does not use its device ends after this long
    measured_after: int = 3  # iterations after which a new job counts as measured
    measured_quiet_us: Micros = 2_000_000  # or after computing for this long without asking for more memory
    risk_active_ppm: int = 800_000  # collocation is disabled when SMACT risk is at least this and ...
    risk_occupancy_ppm: int = 450_000  # ... SMOCC risk is at least this ...
    risk_dram_ppm: int = 400_000  # ... or DRAMA risk is at least this
    max_recoveries: int = 3  # maximum OOM retries
    max_requeues: int = 100  # most times that one job is requeued
    serving: int = Serving.EDF  # order among services: edf (0): deadline; fcfs (1): arrival; priority (2)
    run_ahead_us: Micros = 2_000  # most work that other jobs queue on a GPU beside a service; 0: unlimited
    service_patience_us: Micros = 20_000  # how long a service without a deadline waits for iteration boundaries
    service_share_ppm: int = 900_000  # largest share of the time for engines, while other jobs wait
    kill_after_us: Micros = 10_000_000  # SIGKILL this long after SIGTERM: cancelled jobs, time limits, requeue
    default_time_us: Micros | None = None  # time limit (--time) of jobs that are submitted without one; None: no limit
    max_time_us: Micros | None = None  # longest time limit that a job may be submitted with; None: any, or none
    user_running: int | None = None  # most jobs of one user that run at once; None: any number
    user_devices: int | None = None  # most devices that the jobs of one user are on at once; None: any number
    use_half_life_us: Micros = 86_400_000_000  # after so long a user's device time counts half (`fair`); 0: not at all
    #: Limits with a name behind the dot: `GROUP.NAME`, and those of single users, by uid.
    named_limits: dict[str, int] = field(default_factory=dict)
    extra: dict[str, int] = field(default_factory=dict)  # settings of the policies' own


#: Settings that are numbers, which people change by name.
NUMBER_SETTINGS = tuple(
    part.name
    for part in fields(Settings)
    if part.name not in ("policy", "placement", "allocation", "named_limits", "extra")
)
#: Number settings that need not be set.
OPTIONAL_SETTINGS = frozenset({"max_lanes", "backfill", "quantum_us", "host_store", "margin", "max_jobs"}) | {
    "default_time_us",
    "max_time_us",
    "user_running",
    "user_devices",
}
