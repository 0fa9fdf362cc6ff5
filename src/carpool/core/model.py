"""Values that the core, the wire protocol and both drivers share.

Units: sizes are bytes, times are integer microseconds (``*_us``) on one monotonic axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum

JobId = int
LaneId = int
DeviceId = str
Micros = int

MIB = 1 << 20
GIB = 1 << 30


class JobPhase(StrEnum):
    """Where a job is in its life.  How it ended is a separate type: `Outcome`."""

    QUEUED = "queued"  # accepted, no process yet
    STARTING = "starting"  # placed on a device, its process is being started
    RUNNING = "running"  # its process runs
    STOPPING = "stopping"  # cancelled, its processes have been signalled
    ENDED = "ended"


class Outcome(StrEnum):
    """How an ended job ended."""

    SUCCEEDED = "succeeded"  # exit code 0
    FAILED = "failed"  # exit code other than 0, or killed by a signal nobody here sent
    CANCELLED = "cancelled"
    LOST = "lost"  # its supervisor vanished; the exit code is unknown
    REFUSED = "refused"  # could never run: larger than every device, or a dependency failed


class MemoryClass(StrEnum):
    """Persistent memory outlives iterations; ephemeral memory belongs to one iteration (Salus, § 3)."""

    PERSISTENT = "persistent"
    EPHEMERAL = "ephemeral"


class Allocation(StrEnum):
    """What a job is given."""

    LANES = "lanes"  # memory of one device, and turns
    DEVICES = "devices"  # as many whole devices as it needs, all at once


class Engine(StrEnum):
    """By what means a job shares its device."""

    GRANT = "grant"  # libcarpool, in the job: memory by grant, turns at iteration boundaries
    CHECKPOINT = "checkpoint"  # the driver suspends its processes: turns of the whole device


class Oversubscribe(StrEnum):
    """Whether jobs may need more memory together than a device has."""

    OFF = "off"  # who does not fit waits; memory is moved only where nothing else moves any more
    AUTO = "auto"  # memory is moved to the host store when, and as far as, it does not fit
    ON = "on"  # the same, and never two lanes of one owner side by side


class Sharing(StrEnum):
    """What happens when jobs of several lanes compute on one device at the same time."""

    CONCURRENT = "concurrent"  # they really do, each in its own process (the host device)
    TIMESLICE = "timeslice"  # the driver gives slices of the whole device in turn (CUDA contexts)
    MPS = "mps"  # they really do, in a server that they share: jobs of one user only, and one's fault ends all


class Cause(StrEnum):
    """Why a turn ended."""

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
        return self.persistent + self.ephemeral


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is believed about a job's memory and length before it has been measured."""

    memory: Memory
    source: str  # "hint" | "history"
    iteration_us: Micros | None = None
    iterations: int | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What the core knows of a submission.  Commands, directories and environments stay outside."""

    owner: int  # uid
    name: str = ""
    iterations: int | None = None  # declared by --iterations
    duration_us: Micros | None = None  # declared by --duration: device time expected in total
    weight: int = 100  # share under `fair`; larger is more; --priority
    after: tuple[JobId, ...] = ()  # start only when these have succeeded
    device: DeviceId | None = None  # only this device
    gang: int = 1  # devices that it needs, all at once
    exclusive: bool = False  # shares its device with nobody
    engine: Engine = Engine.GRANT
    estimate: Estimate | None = None


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device as the core sees it."""

    id: DeviceId
    capacity: int  # bytes that lanes and persistent arenas may hold together
    max_lanes: int | None = None  # None: as the policy says
    quantum_us: Micros | None = None  # None: as the settings say
    oversubscribe: Oversubscribe = Oversubscribe.AUTO
    sharing: Sharing = Sharing.CONCURRENT
    checkpoint: bool = False  # jobs of the checkpoint engine may run there


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
class Reason:
    """Why a job waits, or why something was refused.  ``code`` is stable, ``text`` is for people."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the core that an operator may change on the running daemon."""

    policy: str = "fair"  # who computes next; changed by name, not as a setting (see policies.md)
    allocation: Allocation = Allocation.LANES  # fixed by the driver
    backfill: int | None = (
        None  # 1: later jobs that fit go ahead of one that does not; 0: never; None: as the policy says
    )
    quantum_us: Micros | None = None  # shortest turn that a policy takes away at a boundary; None: as the policy says
    max_switch_share_ppm: int = 20_000  # a switch may cost this share of its turn (2 %)
    max_move_share_ppm: int = 50_000  # moving memory to and from the host store may cost this share of a turn (5 %)
    host_store: int | None = None  # bytes of host memory for what is moved out of devices; None: no bound
    grace_us: Micros = 20_000  # off the device for longer than this while others wait: early release
    forced_after_us: Micros = 10_000_000  # a holder asked to yield is forced after this long
    reserve_after_us: Micros = 60_000_000  # a job passed over for this long gets a reservation
    growth_step: int = 4 * MIB  # granularity of memory grants
    max_lanes: int | None = None  # upper bound over what a policy opens per device
    warm_limit: int = 4  # started jobs per device that have not touched it yet
    warm_timeout_us: Micros = 10_000_000  # a started job that has not touched its device stops counting
    measured_after: int = 3  # iterations after which a newcomer counts as measured
    measured_quiet_us: Micros = 2_000_000  # or once it has computed for so long without asking for more memory
    kill_after_us: Micros = 10_000_000  # cancel: SIGKILL this long after SIGTERM
    extra: dict[str, int] = field(default_factory=dict)  # settings of third-party policies


#: Settings that are numbers, which people change by name.
NUMBER_SETTINGS = tuple(part.name for part in fields(Settings) if part.name not in ("policy", "allocation", "extra"))
#: Those of them that need not be set.
OPTIONAL_SETTINGS = frozenset({"max_lanes", "backfill", "quantum_us", "host_store"})
