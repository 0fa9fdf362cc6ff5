"""The commands of the machine to its driver, and the records of placements."""

from __future__ import annotations

from dataclasses import dataclass, field

from carpool.core.model import (
    Attempt,
    DeviceId,
    Estimate,
    JobId,
    LaneId,
    Load,
    Memory,
    MemoryClass,
    Micros,
    Outcome,
    Reason,
)


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device as it was when it was considered for a job.  Sizes are bytes."""

    device: DeviceId
    chosen: bool
    refusal: Reason | None  # why it could not take the job; None: it could
    reluctance: Reason | None  # which condition it did not meet, so that it was tried last
    free: int
    need: int  # what would be reserved for the job there
    margin: int  # what would have to stay free besides, if others are there
    jobs: tuple[JobId, ...]  # the jobs there
    warming: tuple[JobId, ...]  # the ones of ``jobs`` that were warming up
    load: Load | None
    key: tuple[int, ...]  # the policy's; smaller comes first
    slowdown_ppm: int | None = None  # the largest known between the job and a job there; None: unknown


@dataclass(frozen=True, slots=True)
class Placement:
    """The record of a placement, or (nothing chosen) of a refusal: devices in the order in which they are tried.

    The record of a placement has the first eight devices and the chosen ones; that of a refusal has all.
    """

    job: JobId
    policy: str
    strict: bool  # devices that do not meet the conditions are closed
    when_us: Micros
    rows: tuple[DeviceRow, ...]


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start the job's process on a device.  Answer: `ProcessStarted` or `StartFailed`.

    ``further``: the other devices of a job for several, which it has to itself, too.  ``decision``: why there.
    """

    job: JobId
    device: DeviceId
    lane: LaneId
    further: tuple[DeviceId, ...] = ()
    decision: Placement | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AllocateDevices:
    """Whole devices: the job has these to itself until it ends or is preempted.

    The first time: start its process; answer: `ProcessStarted` or `StartFailed`.  Later: let it go on where it was.
    """

    job: JobId
    devices: tuple[DeviceId, ...]


@dataclass(frozen=True, slots=True)
class PreemptJob:
    """Whole devices: stop the job at a safe point and take its devices.  Answer: `Preempted`."""

    job: JobId


@dataclass(frozen=True, slots=True)
class SignalJob:
    """Send a signal to the job's whole process group."""

    job: JobId
    signal: int


@dataclass(frozen=True, slots=True)
class WarnJob:
    """The job's time limit is near: record durably that it has been warned, then signal its whole process group."""

    job: JobId
    signal: int


@dataclass(frozen=True, slots=True)
class WarnOfDeviceTime:
    """The same of the job's limit of device time, of which it is warned apart from its time limit."""

    job: JobId
    signal: int


@dataclass(frozen=True, slots=True)
class TimeOut:
    """The job has reached a limit, as ``text`` says, and is being stopped: record it durably.  `SignalJob` follows."""

    job: JobId
    text: str


@dataclass(frozen=True, slots=True)
class OpenLane:
    """Create a lane of ``size`` bytes (may be 0) for jobs of one owner."""

    lane: LaneId
    device: DeviceId
    owner: int
    size: int


@dataclass(frozen=True, slots=True)
class ResizeLane:
    """The lane's backing becomes ``size`` bytes; when it shrinks no job's ephemeral grant exceeds it any more."""

    lane: LaneId
    size: int


@dataclass(frozen=True, slots=True)
class CloseLane:
    """Close a lane without jobs; its memory returns to the device."""

    lane: LaneId


@dataclass(frozen=True, slots=True)
class MoveJob:
    """The job, which holds no turn, belongs to another lane from now on."""

    job: JobId
    lane: LaneId


@dataclass(frozen=True, slots=True)
class GrantMemory:
    """The job's limits are now ``memory``.  ``answers`` says whether this answers a waiting `MemoryRequested`."""

    job: JobId
    memory: Memory
    answers: MemoryClass | None = None


@dataclass(frozen=True, slots=True)
class DenyMemory:
    """The request can never be met (or was optional): the job sees out-of-memory."""

    job: JobId
    memory_class: MemoryClass
    reason: Reason


@dataclass(frozen=True, slots=True)
class GrantTurn:
    """Give the free turn of a lane to a job that waits for it, or let its paused holder go on."""

    lane: LaneId
    job: JobId


@dataclass(frozen=True, slots=True)
class DenyTurn:
    """Refuse a service its turn: the weights fit on no device, or contexts leave them no room.  Its wait is over."""

    job: JobId
    reason: Reason


@dataclass(frozen=True, slots=True)
class PlaceWeights:
    """Weights are on the device from now on, or still, for a service that waits for its turn.

    It may copy them at once.  They stay until its turn is over, or it is gone; or until another job gets the device to
    itself before that turn has begun: then they may be dropped, and are placed anew later.
    """

    device: DeviceId
    owner: int
    key: str
    size: int
    job: JobId


@dataclass(frozen=True, slots=True)
class DropWeights:
    """Give the memory of weights that no service uses back to the device, where it is needed."""

    device: DeviceId
    owner: int
    key: str


@dataclass(frozen=True, slots=True)
class PauseTurn:
    """A service needs the device: close at the next boundary, or (``forced``) at once, and save nothing.

    It takes the place of any earlier `RequestYield` or `WatchIdle`.  Answer: `TurnPaused`, unless the turn ends first.
    `GrantTurn` lets it go on; `RequestYield` (forced) makes it save what it has in its lane, and give its turn back.

    ``forced`` says by when the core needs the device.  The simulator obeys it; the daemon pauses at once either way,
    because a pause of a real job costs the same at whatever instruction it comes.
    """

    job: JobId
    forced: bool = False


@dataclass(frozen=True, slots=True)
class NameSuccessor:
    """Write into the holder's seat which job computes next (None: no job waits)."""

    lane: LaneId
    holder: JobId
    successor: JobId | None


@dataclass(frozen=True, slots=True)
class RequestYield:
    """Ask the holder to give way at its next boundary, or (``forced``) at once, at any instruction.

    It takes the place of an earlier `PauseTurn` that has not been answered.
    """

    job: JobId
    forced: bool = False


@dataclass(frozen=True, slots=True)
class WatchIdle:
    """Take the turn from the holder as soon as it has been off the device for ``grace_us``: another job waits."""

    job: JobId
    grace_us: Micros


@dataclass(frozen=True, slots=True)
class WithdrawYield:
    """Withdraw the request to yield: no job waits any more; the holder may keep its turn, also off the device."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Offload:
    """Move the persistent memory of a job without a turn to the host store.  Answer: `Offloaded` or `OffloadFailed`.

    It comes back with the next turn after a `GrantMemory`.
    """

    job: JobId


@dataclass(frozen=True, slots=True)
class PinStore:
    """The job may have to move: have the first ``size`` bytes of its store ready, pinned, without waiting for that."""

    job: JobId
    size: int


@dataclass(frozen=True, slots=True)
class DropStore:
    """The job's memory is all on the device: give back the host memory that its store keeps for the next time."""

    job: JobId


@dataclass(frozen=True, slots=True)
class StopEngine:
    """The host store has no room: let the front of this idle engine end it, unless it has requests by then."""

    job: JobId


@dataclass(frozen=True, slots=True)
class RetryJob:
    """The attempt has failed, and the job waits again: record that durably, and release what the attempt held.

    The next `StartJob` is carried out when nothing of the earlier attempt is left.
    """

    job: JobId
    attempt: int  # the number of the one to come, from 2 on
    past: Attempt  # the one that has failed
    estimate: Estimate | None  # of the attempt to come
    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class EndJob:
    """The job is over: record that durably, and release what the job held."""

    job: JobId
    outcome: Outcome
    code: int | None = None
    signal: int | None = None
    reason: Reason | None = None


Command = (
    StartJob
    | AllocateDevices
    | PreemptJob
    | SignalJob
    | WarnJob
    | WarnOfDeviceTime
    | TimeOut
    | OpenLane
    | ResizeLane
    | CloseLane
    | MoveJob
    | GrantMemory
    | DenyMemory
    | GrantTurn
    | DenyTurn
    | PlaceWeights
    | DropWeights
    | PauseTurn
    | NameSuccessor
    | RequestYield
    | WatchIdle
    | WithdrawYield
    | Offload
    | PinStore
    | DropStore
    | StopEngine
    | RetryJob
    | EndJob
)
