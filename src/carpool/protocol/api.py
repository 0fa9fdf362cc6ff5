"""Messages of the HTTP API (JSON over ``$CARPOOL_HOME/carpool.sock``).

Every response carries the header ``Carpool-Protocol``.  Errors are an `ErrorBody` with a 4xx or 5xx status.
Times are microseconds of the wall clock since the epoch unless the name says otherwise; sizes are bytes.
"""

from __future__ import annotations

import msgspec

API_VERSION = 1
PROTOCOL_HEADER = "Carpool-Protocol"


class ErrorInfo(msgspec.Struct, frozen=True):
    """``code`` is stable; ``message`` says what is wrong; ``hint`` says what to do about it."""

    code: str
    message: str
    hint: str = ""


class ErrorBody(msgspec.Struct, frozen=True):
    error: ErrorInfo


class ReasonInfo(msgspec.Struct, frozen=True):
    code: str
    text: str


class SubmitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/jobs.  ``argv`` is run as is, never through a shell.

    Defaults are not sent: an older daemon does not know every field.
    """

    argv: list[str]
    cwd: str
    env: dict[str, str]
    name: str = ""
    iterations: int | None = None
    duration_us: int | None = None
    persistent_bytes: int | None = None  # hint; a single --mem figure is persistent_bytes
    ephemeral_bytes: int | None = None
    weight: int = 100
    after: list[int] = []
    device: str | None = None
    exclusive: bool = False  # share the device with nobody
    engine: str = "grant"  # "grant" | "checkpoint": by what means it shares its device
    foreground: bool = False  # the caller supervises the job itself (carpool run)


class SubmitResponse(msgspec.Struct, frozen=True):
    id: int


class MovedInfo(msgspec.Struct, frozen=True):
    """Persistent memory moved in all, and the time that it took: ``out`` to the host store, ``in`` back from it."""

    out_bytes: int = 0
    out_us: int = 0
    in_bytes: int = 0
    in_us: int = 0


class JobInfo(msgspec.Struct, frozen=True):
    """One row of GET /v1/jobs and the answer of GET /v1/jobs/{id}."""

    id: int
    name: str
    owner: int
    command: list[str]
    phase: str
    outcome: str | None
    exit_code: int | None
    signal: int | None
    reason: ReasonInfo | None  # of the present wait, or of the outcome
    device: str | None
    lane: int | None
    holds_turn: bool
    weight: int
    persistent_bytes: int
    ephemeral_bytes: int
    persistent_limit: int
    ephemeral_limit: int
    scratch_bytes: int  # private memory of the processes outside the arenas (reported, not limited)
    iterations: int
    iterations_total: int | None
    iteration_us: int | None
    device_us: int
    switches: int
    residue_bytes: int
    submitted_us: int
    started_us: int | None
    ended_us: int | None
    offloaded: bool = False  # its persistent memory has been moved out of the device
    stored_bytes: int = 0  # that are in the host store now
    moved: MovedInfo = MovedInfo()
    cwd: str = ""
    after: list[int] = []
    estimate_source: str | None = None
    pid: int | None = None
    alone: str | None = None  # why it has its device to itself, or waits for that
    immovable: str | None = None  # why its memory is never moved out of the device
    fixed_bytes: int = 0  # device memory that it has from the driver itself: Carpool does not manage it
    engine: str = "grant"  # "grant" | "checkpoint": by what means it shares its device


class JobList(msgspec.Struct, frozen=True):
    jobs: list[JobInfo]


class LaneInfo(msgspec.Struct, frozen=True):
    id: int
    owner: int
    size_bytes: int
    jobs: list[int]
    holder: int | None
    waiting: list[int]


class ProcessInfo(msgspec.Struct, frozen=True):
    """A process on a GPU.  ``job`` 0: one of the daemon's own; null: a foreign one."""

    pid: int
    used_bytes: int | None
    job: int | None


class MeanInfo(msgspec.Struct, frozen=True):
    """Averages over the samples of the last minute."""

    samples: int = 0
    busy_ppm: int | None = None
    sm_active_ppm: int | None = None
    sm_occupancy_ppm: int | None = None
    dram_active_ppm: int | None = None
    power_mw: int | None = None


class TelemetryInfo(msgspec.Struct, frozen=True):
    """What a device does.  Quantities that were not measured are null, and ``missing`` says why."""

    level: str = "none"  # how much is measured: "gpm", "basic", "host" or "none"
    reason: str = ""  # why it is not more
    taken_us: int | None = None  # when the last sample was taken
    age_us: int | None = None  # and how long ago that was
    interval_us: int | None = None  # the pause between two samples
    total_bytes: int | None = None  # memory of the device
    used_bytes: int | None = None  # memory in use by anybody
    free_bytes: int | None = None  # memory that can be had now; on a host device, that the machine has, too
    reserved_bytes: int | None = None  # memory that the driver keeps for itself
    foreign_bytes: int | None = None  # memory in use that is in no lane or bank: others', contexts, libraries
    processes: list[ProcessInfo] | None = None  # those on the device
    busy_ppm: int | None = None  # time in which anything ran on the GPU; host device: processors that were not idle
    memory_busy_ppm: int | None = None  # time in which the GPU's memory was read or written
    sm_active_ppm: int | None = None  # SMACT: multiprocessors with work, averaged over time
    sm_occupancy_ppm: int | None = None  # SMOCC: warps on them, of the most that fit
    dram_active_ppm: int | None = None  # DRAMA: memory bandwidth in use
    power_mw: int | None = None  # power drawn, milliwatts
    power_limit_mw: int | None = None  # the power limit in force
    energy_mj: int | None = None  # millijoules since the driver was loaded
    temperature_c: int | None = None  # degrees Celsius
    clock_mhz: int | None = None  # of the multiprocessors
    clock_limit_mhz: int | None = None  # their highest
    throttled: list[str] | None = None  # why the clock is lower than it could be: power, temperature, hardware
    mig: bool | None = None  # the GPU is partitioned, or the device is an instance of one that is
    mps: bool | None = None  # processes there use an MPS server
    mean: MeanInfo = MeanInfo()  # averages over the last minute
    missing: dict[str, str] = {}  # quantity: why it was not measured


class DeviceInfo(msgspec.Struct, frozen=True):
    id: str
    kind: str
    capacity_bytes: int
    granted_bytes: int  # sum of persistent grants and lanes
    used_bytes: int  # pages that really exist
    free_bytes: int
    lanes: list[LaneInfo]
    jobs: list[int]
    queue: list[int]
    quantum_us: int  # in force
    quantum_from: str  # "device" | "settings" | "policy": who says so
    oversubscribe: str  # "off" | "auto" | "on"
    stored_bytes: int  # of its jobs, in the host store
    moved: MovedInfo  # of its present jobs
    telemetry: TelemetryInfo = TelemetryInfo()
    sharing: str = "concurrent"  # "concurrent" | "timeslice" | "mps": how its lanes compute at the same time
    alone: int | None = None  # the job that has it to itself


class StoreInfo(msgspec.Struct, frozen=True):
    """The host store: memory for what has been moved out of devices."""

    budget_bytes: int
    default: bool  # nobody has set the budget
    kept_bytes: int  # pages that it holds: they stay when memory goes back, for the next time
    used_bytes: int  # what of them holds memory of jobs at present


class DeviceList(msgspec.Struct, frozen=True):
    devices: list[DeviceInfo]
    store: StoreInfo


class DeviceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """PUT /v1/devices/{device}.  What is absent is left alone."""

    quantum_us: int | msgspec.UnsetType | None = msgspec.UNSET  # null: as the settings or the policy say
    oversubscribe: str | msgspec.UnsetType = msgspec.UNSET


class PolicyInfo(msgspec.Struct, frozen=True):
    """GET /v1/policy."""

    name: str
    available: list[str]
    settings: dict[str, int | None]
    fault: str | None = None  # what a policy of one's own did wrong first; there jobs are served in order of arrival


class PolicyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT /v1/policy.  ``settings`` uses the names of `carpool.core.model.Settings`."""

    name: str | None = None
    settings: dict[str, int | None] = {}


class VersionInfo(msgspec.Struct, frozen=True):
    """GET /v1/version."""

    version: str
    api: int
    pid: int
    home: str
    uid: int
    started_us: int


class EventInfo(msgspec.Struct, frozen=True):
    """One line of GET /v1/events (newline-delimited JSON): an event or command of the core, as journaled."""

    seq: int
    time_us: int  # wall clock
    now_us: int  # the core's clock
    kind: str
    job: int | None
    data: dict[str, object]


class ShutdownRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/shutdown.  Without ``stop_jobs`` running jobs go on and are adopted by the next daemon."""

    stop_jobs: bool = False
