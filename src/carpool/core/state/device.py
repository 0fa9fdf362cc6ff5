"""A device: who is there, what is reserved of it, and what it does."""

from __future__ import annotations

from dataclasses import dataclass, field

from carpool.core.model import DeviceSpec, JobId, LaneId, Load, MemoryClass, Micros, Oversubscribe
from carpool.core.state.lane import Lane


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
    """``requests`` holds the requests for memory in order; ``short`` says why nothing may be admitted."""

    spec: DeviceSpec
    position: int = 0  # 0, 1, 2 ... in the order in which devices were added
    last_placed: int = 0  # number of the last placement here
    jobs: set[JobId] = field(default_factory=set)
    lanes: set[LaneId] = field(default_factory=set)
    persistent: int = 0  # sum of persistent reservations
    lane_bytes: int = 0
    grower: JobId | None = None
    warm: set[JobId] = field(default_factory=set)
    requests: list[tuple[int, JobId, MemoryClass]] = field(default_factory=list)
    waiters: set[JobId] = field(default_factory=set)  # jobs that could not have the memory they need
    moved: Moved = field(default_factory=Moved)
    reservation: JobId | None = None
    short: JobId | None = None  # a job whose memory does not fit at present
    short_since_us: Micros = 0
    loners: list[JobId] = field(default_factory=list)  # jobs that must have it to themselves, the first one has it
    makes_way: bool = False  # the one that has it to itself waits for memory that the others have first to work off
    held_by: JobId | None = None  # a job for several devices has it to itself, and is seated on another
    excluding: set[JobId] = field(default_factory=set)  # its jobs whose turns exclude all others (`Job.excludes`)
    exclusive_turn: JobId | None = None  # that of them which has the whole device for its turn
    weights: dict[tuple[int, str], Weights] = field(default_factory=dict)  # of services, by owner and key
    weight_bytes: int = 0  # of those that are there
    weights_kept: int = 0  # of those of them that somebody uses, or is to
    co_runners: tuple[Lane, ...] = ()  # lanes of which somebody may compute, where ...
    co_runner_count: int = 0  # ... so many; 0: to be counted
    excess: int = 0  # bytes beyond the capacity that were found at a restart
    unmanaged: int = 0  # bytes that are in use, but not by grant
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
        return max(0, self.spec.capacity - self.unmanaged)

    @property
    def headroom(self) -> int:
        """Bytes that nobody has; negative: others have taken memory that was promised to jobs.

        Weights that nobody uses lie in free memory: whoever takes it makes them leave (`core.turns.weights`).
        """
        return self.usable - self.persistent - self.lane_bytes - self.weights_kept

    @property
    def free(self) -> int:
        """Bytes that can be reserved at once."""
        return max(0, self.headroom)

    @property
    def oversubscribed(self) -> bool:
        """Whether its jobs may need more memory together than it has."""
        return self.spec.oversubscribe is not Oversubscribe.OFF
