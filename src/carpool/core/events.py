"""All events of the core.  A driver reports what happens on the machine as events, in order."""

from __future__ import annotations

from dataclasses import dataclass

from carpool.core.model import (
    Attempt,
    Cause,
    Demand,
    DeviceId,
    DeviceSpec,
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
    Settings,
    Usage,
)


@dataclass(frozen=True, slots=True)
class DeviceAdded:
    """A device is added, with its known properties.  No device is ever removed."""

    device: DeviceSpec


@dataclass(frozen=True, slots=True)
class DeviceChanged:
    """An operator has set a device's time quantum (None: as the settings say), its oversubscription, or its reserve."""

    device: DeviceId
    quantum_us: Micros | None
    oversubscribe: Oversubscribe
    reserve: int = 0  # bytes: as in `DeviceSpec`


@dataclass(frozen=True, slots=True)
class DeviceDrained:
    """An operator wants no new job on a device; those that are there go on.  ``why``: for people; empty: no more."""

    device: DeviceId
    why: str


@dataclass(frozen=True, slots=True)
class ForeignMemory:
    """The part of a device's capacity that is in use, but not by grant, has changed; it is never counted as free.

    Processes that are no jobs hold it, or it is memory of jobs that comes from the driver itself; but not of jobs for
    which all of the device is kept.
    """

    device: DeviceId
    size: int  # bytes
    others: int = 0  # of it: bytes of programs that are not Carpool's, as far as the driver names processes
    spare: int = 0  # bytes of the device that are free beside its capacity: contexts take those first


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """The load of a device has changed, as telemetry says.  A device of which this never came has no telemetry.

    None: unknown, or no longer known (``why``, for people); without a ``why`` there is nothing to be known,
    because the device has no telemetry after all.
    """

    device: DeviceId
    load: Load | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class HostMeasured:
    """The machine's own memory has changed: what is left of it, and what the processes of jobs have.

    A core that never hears of it starts jobs without regard to the machine's memory.
    """

    free: int  # bytes that jobs may take; negative: fewer are left than are to stay free
    cores: int  # processors that jobs may use
    jobs: dict[JobId, int]  # bytes, of the started jobs whose figure has changed
    idle: tuple[JobId, ...] = ()  # started jobs that have used no processor since the measurement before


@dataclass(frozen=True, slots=True)
class PaceKnown:
    """The time of an iteration of one kind of jobs, alone or with a co-runner, as an earlier daemon measured it."""

    model: str  # of the devices, and how they are shared: see `Device.model`
    kind: str
    beside: str  # the kind of the co-runner; empty: none
    total_us: Micros  # device time of ...
    iterations: int  # ... so many
    measured_us: Micros  # when, last; it may be before the core's own time began


@dataclass(frozen=True, slots=True)
class UseKnown:
    """A user's device time as an earlier daemon counted it."""

    owner: int  # uid
    used_us: Micros  # as it counted then
    at_us: Micros  # when; it may be before the core's own time began


@dataclass(frozen=True, slots=True)
class WeightsFound:
    """After a restart: weights of services that are on a device.  Comes before `Adopted`."""

    device: DeviceId
    owner: int
    key: str
    size: int  # bytes
    reload_us: Micros


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Another policy or other settings, on the running system."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class Submitted:
    """A user has submitted a job; after a restart: a job that an earlier daemon had not ended."""

    job: JobId
    spec: JobSpec
    waited_us: Micros = 0  # it was submitted so long ago, to an earlier daemon
    past: tuple[Attempt, ...] = ()  # what came to nothing there; ``spec.estimate`` is that of the attempt to come
    pause_us: Micros = 0  # as much is left of the pause before that attempt


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The job will be cancelled: it is signalled, or never started."""

    job: JobId


@dataclass(frozen=True, slots=True)
class HoldChanged:
    """A queued job is held, so that it is not placed, or released.  ``by``: who holds it, for people; None: no user."""

    job: JobId
    by: str | None


@dataclass(frozen=True, slots=True)
class PauseChanged:
    """A job is paused, so that it leaves its device and keeps its processes, or resumed.

    ``by``: who pauses it, for people, or `STOP_SIGNAL`; None: no user.  A queued job that is paused is not placed.
    """

    job: JobId
    by: str | None


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A user has changed the submission of a job that has not ended: `CHANGEABLE` of ``spec`` are in force from now on.

    What matters only before a job starts is looked at again if it is started once more.
    """

    job: JobId
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class RequeueRequested:
    """A job that has been started is to be stopped, and to wait for its next attempt.  ``by``: for people."""

    job: JobId
    by: str


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """The job's process runs (answer to the command `StartJob`)."""

    job: JobId


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The process could not be started; ``text`` says why, for people."""

    job: JobId
    text: str


@dataclass(frozen=True, slots=True)
class ProcessExited:
    """The job's main process ended.  Exactly one of ``code`` and ``signal`` is set; both None: unknown (lost)."""

    job: JobId
    code: int | None = None
    signal: int | None = None
    out_of_memory: str | None = None  # it failed for want of device memory: what it said, for people
    note: str = ""  # what else is known of how it came to that, for people
    joined: bool = False  # the process had joined: Carpool had started neither it nor a supervisor
    stopped: Outcome | None = None  # whatever had started it has ended it: CANCELLED or TIMED_OUT; ``note`` says who


@dataclass(frozen=True, slots=True)
class Attached:
    """A process of the job loaded the framework and holds a seat; it has not touched the device yet."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Detached:
    """The attached process is gone (the job itself may go on): its turn and its own memory are free.

    ``alone``: why the job must have its device to itself all the same, for its other processes; ``kept``: bytes of its
    persistent memory that those have, and keep.
    """

    job: JobId
    alone: str | None = None
    kept: int = 0


@dataclass(frozen=True, slots=True)
class TurnWanted:
    """The job touched device memory without a turn and is stopped there until it gets one."""

    job: JobId
    urgent: bool = False  # a signal waits to be handled: one turn as soon as possible
    demand: Demand | None = None  # of a service; without one its turn needs no weights


@dataclass(frozen=True, slots=True)
class ServiceBusy:
    """An engine has requests from now on, or (not ``busy``) none any more, as its front says."""

    job: JobId
    busy: bool


@dataclass(frozen=True, slots=True)
class EngineServed:
    """A front has the engine ready for requests, and would start it again if it ended; or (not ``served``) none has."""

    job: JobId
    served: bool


@dataclass(frozen=True, slots=True)
class TurnPaused:
    """Answer to the command `PauseTurn`: the holder is closed, nothing was saved, and the lane stays its own."""

    job: JobId
    usage: Usage


@dataclass(frozen=True, slots=True)
class TurnReleased:
    """The holder gave its turn back and named no successor (its seat had none)."""

    job: JobId
    cause: Cause
    usage: Usage


@dataclass(frozen=True, slots=True)
class TurnPassed:
    """The holder handed its turn directly to the successor named in its seat; ``to`` computes already."""

    job: JobId
    to: JobId
    cause: Cause
    usage: Usage


@dataclass(frozen=True, slots=True)
class MemoryRequested:
    """The job's arena of one class must grow to ``total`` bytes; the allocating thread waits for the answer.

    With ``optional`` the job goes on without waiting and without the memory if refused (promotion of residue).  With
    ``keeps_turn`` the job cannot let go of its turn before it has the memory: it captures a CUDA graph.  With ``packs``
    ``total`` persistent bytes stand for all of its limits: it was refused memory, and keeps nothing in its lane.
    """

    job: JobId
    memory_class: MemoryClass
    total: int
    optional: bool = False
    keeps_turn: bool = False
    packs: bool = False
    alive: int | None = None  # bytes of its tensors, as it says; None: asked of an earlier daemon


@dataclass(frozen=True, slots=True)
class RequestWithdrawn:
    """The job does not wait any more for the memory of one class that it requested last (Ctrl-C).

    It may have been answered meanwhile: then nothing happens.
    """

    job: JobId
    memory_class: MemoryClass


@dataclass(frozen=True, slots=True)
class MemoryReturned:
    """The job gave persistent memory back (blocks freed, pages released); its grant shrinks to ``total``."""

    job: JobId
    memory_class: MemoryClass
    total: int


@dataclass(frozen=True, slots=True)
class Preempted:
    """Whole devices: answer to the command `PreemptJob`: the job's devices are free."""

    job: JobId
    usage: Usage


@dataclass(frozen=True, slots=True)
class Offloaded:
    """Answer to the command `Offload`: all of the job's persistent memory is in the host store now."""

    job: JobId


@dataclass(frozen=True, slots=True)
class OffloadFailed:
    """The other answer to `Offload`: nothing has been moved; ``text`` says why, for people."""

    job: JobId
    text: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """The job's counters, read periodically and with every turn event."""

    job: JobId
    usage: Usage


@dataclass(frozen=True, slots=True)
class TraitsSeen:
    """The known traits of a job's use of its device, all of them each time; so hearing it again changes nothing.

    ``alone``: why it must have its device to itself until it ends; ``immovable``: why its memory cannot be offloaded;
    both for people, and None while that is not so.
    """

    job: JobId
    alone: str | None = None
    immovable: str | None = None


@dataclass(frozen=True, slots=True)
class Adopted:
    """After a restart: a job found running, with what its seat says.  Comes after all `Submitted` of a restart."""

    job: JobId
    phase: JobPhase
    device: str
    lane: LaneId | None  # None: it has not attached yet
    granted: Memory
    attached: bool
    holds_turn: bool
    wants_turn: bool
    offloaded: bool
    usage: Usage
    started_us: Micros
    offload_asked: bool = False  # by the earlier daemon, and not done yet: the answer is still to come
    further: tuple[DeviceId, ...] = ()  # the other devices of a job for several
    paused: bool = False  # it holds its turn (``holds_turn``), but is closed
    demand: Demand | None = None  # of a service that holds a turn or wants one
    timed_out: str = ""  # which limit it has reached, so that it was told to end; for people
    paused_us: Micros = 0  # so long it was paused in all
    warned: bool = False  # the signal before its time limit has been sent
    over: bool = False  # its process has ended meanwhile: how follows, and no limit counts any more
    warned_of_device_time: bool = False  # the signal before its limit of device time has been sent
    moved_out: int = 0  # bytes of its memory that are off the device, whether they lie in its store or in its process


@dataclass(frozen=True, slots=True)
class RestartBegan:
    """A restart begins: until `RestartEnded` the core admits, grants and takes nothing, and hears of what exists."""


@dataclass(frozen=True, slots=True)
class RestartEnded:
    """All `Submitted` and `Adopted` of a restart have come: from now on the core decides again."""


@dataclass(frozen=True, slots=True)
class PolicyTimedOut:
    """A policy of a user's did not answer in time, and is not asked again until it is chosen anew.

    Comes before the event in which that happened, so that a replay, where time does not count, falls back at the same
    question.
    """

    sort: str  # "policy" or "placement"
    question: int  # which one asked in the next event, from 1; 0: it is not asked from now on


@dataclass(frozen=True, slots=True)
class Tick:
    """The earliest timer of the core is due (`Machine.next_timer`)."""


Event = (
    DeviceAdded
    | DeviceChanged
    | DeviceDrained
    | ForeignMemory
    | DeviceLoad
    | HostMeasured
    | PaceKnown
    | UseKnown
    | WeightsFound
    | SettingsChanged
    | Submitted
    | CancelRequested
    | HoldChanged
    | PauseChanged
    | JobChanged
    | RequeueRequested
    | ProcessStarted
    | StartFailed
    | ProcessExited
    | Attached
    | Detached
    | TurnWanted
    | ServiceBusy
    | EngineServed
    | TurnPaused
    | TurnReleased
    | TurnPassed
    | MemoryRequested
    | RequestWithdrawn
    | MemoryReturned
    | Preempted
    | Offloaded
    | OffloadFailed
    | Sampled
    | TraitsSeen
    | Adopted
    | RestartBegan
    | RestartEnded
    | PolicyTimedOut
    | Tick
)


class IllegalTransition(Exception):
    """An event that cannot happen in the present state.  The state is as it was before.

    The text tells the recent history of the job, so that one line of a log is enough to understand it.
    """


class InvariantError(Exception):
    """The core contradicts itself: a defect of Carpool.  The text tells the story of the job or lane."""
