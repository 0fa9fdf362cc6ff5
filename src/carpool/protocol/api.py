"""Messages of the HTTP API (JSON over ``$CARPOOL_HOME/carpool.sock``).

Every response carries the header ``Carpool-Protocol``.  Errors are an `ErrorBody` with a 4xx or 5xx status.
Times are microseconds of the wall clock since the epoch unless the name says otherwise; sizes are bytes.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import msgspec

from carpool.protocol.models import DEFAULT_PRIORITY
from carpool.protocol.notices import NotifyTarget

API_VERSION = 1
PROTOCOL_HEADER = "Carpool-Protocol"
LOG_OFFSET_HEADER = "Carpool-Log-Offset"


class ErrorInfo(msgspec.Struct, frozen=True):
    """``code`` is stable; ``message`` says what is wrong; ``hint`` says what to do about it."""

    code: str
    message: str
    hint: str = ""


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every answer with a status from 400 on.  ``request``: its id, as in the daemon's log."""

    error: ErrorInfo
    request: str = ""


class ReasonInfo(msgspec.Struct, frozen=True):
    """Why a job waits, or how it ended.  ``code`` is stable; ``text`` is for people."""

    code: str
    text: str


class JobTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that a submission has, and the description of its job."""

    after: list[int] = []  # start when these have succeeded
    after_any: list[int] = []  # start when these have ended
    after_notok: list[int] = []  # start when these have ended without success
    checkpoint: bool = False  # the GPU's driver suspends it between its turns
    gpus: int = 1  # devices that it needs at once; several devices are not shared with other jobs
    retries: int = 0  # so often it is started again after a failure that is not for want of memory
    begin_us: int | None = None  # it is not placed before
    time_us: int | None = None  # an attempt is stopped when it has run for so long
    device_time_us: int | None = None  # an attempt is stopped when it has had so much device time
    limit_signal: int = 0  # number of a signal before the end of ``time_us``; 0: none
    limit_signal_us: int = 0  # so long before
    array: int | None = None  # the id of its array, which the daemon gives: that of the first of its jobs
    index: int | None = None  # its index there
    group: str = ""  # of which so many jobs run at once as administrators say; empty: of none
    retry_of: int | None = None  # the ended job in whose place it runs, which the daemon says
    joined: bool = False  # its process was there before the job: it has joined, which the daemon says
    launcher: str = ""  # of one that joins: what has started it ("slurm 12"), and ends it by SIGTERM
    request: str = ""  # the id of the request that has submitted it, from its header: the daemon says it


_TERMS = JobTerms.__struct_fields__
_terms = operator.attrgetter(*_TERMS)


def terms(of: JobTerms) -> dict[str, Any]:
    """Return the fields that a submission and a shown job have in common, of either."""
    return dict(zip(_TERMS, _terms(of), strict=True))


class SubmitRequest(JobTerms, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/jobs.  ``argv`` is run as is, never through a shell.  Defaults are not sent."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    name: str = ""
    iterations: int | None = None
    duration_us: int | None = None
    persistent_bytes: int | None = None  # hint; a single --mem figure is persistent_bytes
    ephemeral_bytes: int | None = None
    weight: int = 100
    device: str | None = None  # only this one, or one of these, separated by commas
    exclusive: bool = False  # share the device with no other job
    foreground: bool = False  # the caller supervises the job itself (carpool run)
    estimate_source: str = "hint"  # where the memory figures come from: the user, or an estimator
    service: int | None = None  # priority among services: it answers requests, which come before jobs
    engine: bool = False  # a server of models: a service, and its front reports its requests (POST /v1/jobs/{id}/busy)
    pin: bool = False  # of an engine: its memory stays on its device; for administrators
    requeue: bool = False  # it is started again after the machine has restarted, which counts as no retry
    output: str | None = None  # path for standard output, with %j for the id and %% for a %; null: the job's log
    error: str | None = None  # the same for standard error; null: where standard output goes
    hold: bool = False  # it is not placed until a user releases it
    array_limit: int = 0  # so many jobs of the array run at once; 0: as many as find room
    notify: list[NotifyTarget] = []  # targets that are told of its starts and its end
    parameters: dict[str, str] = {}  # of a grid: the job has them as CARPOOL_PARAM_NAME
    own_variables: list[str] = []  # of ``env``: names of what was given for the job, and is not the shell's
    activated: dict[str, str] = {}  # of ``env``: what the virtual or conda environment of a job file sets
    launcher_ends_us: int | None = None  # when the launcher's time limit ends it, wall clock; null: it has none

    def __post_init__(self) -> None:
        """Make an engine a service."""
        if self.engine and self.service is None:
            msgspec.structs.force_setattr(self, "service", DEFAULT_PRIORITY)


class JobUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """PATCH /v1/jobs/{id}: fields of `SubmitRequest`.  What is absent is left alone.

    ``device``, ``after...`` and ``begin_us`` only of a job that is queued.
    """

    name: str | msgspec.UnsetType = msgspec.UNSET
    weight: int | msgspec.UnsetType = msgspec.UNSET
    iterations: int | msgspec.UnsetType | None = msgspec.UNSET
    duration_us: int | msgspec.UnsetType | None = msgspec.UNSET
    device: str | msgspec.UnsetType | None = msgspec.UNSET
    after: list[int] | msgspec.UnsetType = msgspec.UNSET
    after_any: list[int] | msgspec.UnsetType = msgspec.UNSET
    after_notok: list[int] | msgspec.UnsetType = msgspec.UNSET
    begin_us: int | msgspec.UnsetType | None = msgspec.UNSET
    time_us: int | msgspec.UnsetType | None = msgspec.UNSET
    device_time_us: int | msgspec.UnsetType | None = msgspec.UNSET
    limit_signal: int | msgspec.UnsetType = msgspec.UNSET
    limit_signal_us: int | msgspec.UnsetType = msgspec.UNSET
    group: str | msgspec.UnsetType = msgspec.UNSET


class BusyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/jobs/{id}/busy: whether an engine has requests.  ``busy`` counts for 30 s: it is to be said again."""

    busy: bool


class CleanRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/clean: ended jobs that are to be removed with their logs; at most 1000."""

    jobs: list[int]


class CleanResponse(msgspec.Struct, frozen=True):
    """The numbers of the jobs that are removed, and of those that stay.

    ``kept``: jobs that other jobs wait for, the newest job, jobs that have just ended, jobs of other users, and unknown
    ones.
    """

    removed: list[int]
    kept: list[int]


class RunInfo(msgspec.Struct, frozen=True):
    """Memory that one earlier run of a command needed, in bytes at its peak."""

    persistent: int
    ephemeral: int


class HistoryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/history: which runs of this command, in this directory, of the caller's, are known?"""

    argv: list[str]
    cwd: str


class HistoryInfo(msgspec.Struct, frozen=True):
    """GET /v1/history: earlier runs of a command."""

    runs: list[RunInfo]  # that ended well, the newest last


class SubmitResponse(msgspec.Struct, frozen=True):
    """The id of the job, which is on the disk by now."""

    id: int


class SubmitManyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/submissions: all of the jobs, or, if one is refused, none."""

    jobs: list[SubmitRequest]
    env: dict[str, str] = {}  # what the environments of all have in common
    follows: list[list[int]] = []  # for each job the positions of jobs before it in ``jobs`` that it starts after
    follows_any: list[list[int]] = []  # the same, when they have ended
    follows_notok: list[list[int]] = []  # the same, when they have ended without success
    arrays: list[list[int]] = []  # positions in ``jobs``, ascending: these jobs are one array, or one grid


class RetryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/retries: ended jobs, at most 1000, that are to run once more, as new jobs."""

    jobs: list[int]
    env: dict[str, str]  # that of an ended job is erased
    given: list[str] = []  # names in ``env`` that were given for this, and are not only the shell's


class LeftOut(msgspec.Struct, frozen=True):
    """A job that is not tried again, and why."""

    job: int
    error: ErrorInfo


class RetryResponse(msgspec.Struct, frozen=True):
    """``ids``: the new jobs, in whose order ``retried`` are those whose places they take.  All are on the disk."""

    ids: list[int]
    retried: list[int]
    left: list[LeftOut]


class SubmitManyResponse(msgspec.Struct, frozen=True):
    """The ids, in the order of the request's jobs."""

    ids: list[int]


class MovedInfo(msgspec.Struct, frozen=True):
    """Persistent memory moved in all, and the time that it took: ``out`` to the host store, ``in`` back from it."""

    out_bytes: int = 0
    out_us: int = 0
    in_bytes: int = 0
    in_us: int = 0


class AttemptInfo(msgspec.Struct, frozen=True):
    """A start of a job that is over."""

    number: int
    device: str | None
    started_us: int | None
    ended_us: int | None
    exit_code: int | None
    signal: int | None
    text: str  # how it ended
    persistent_bytes: int  # most that it has used
    ephemeral_bytes: int
    log: str  # the name of its log in the job's directory


class JobInfo(JobTerms, frozen=True):
    """One row of GET /v1/jobs and the answer of GET /v1/jobs/{id}.

    Texts of another user's job may be hidden: then they are empty or null.
    """

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
    device_us: int  # turn time: how long it has held a turn
    switches: int
    residue_bytes: int
    submitted_us: int
    started_us: int | None
    ended_us: int | None
    offloaded: bool = False  # its persistent memory has been moved out of the device
    stored_bytes: int = 0  # that are in the host store now
    moved: MovedInfo = MovedInfo()
    cwd: str = ""
    estimate_source: str | None = None
    pid: int | None = None
    alone: str | None = None  # why it has its device to itself, or waits for that
    immovable: str | None = None  # why its memory is never moved out of the device
    fixed_bytes: int = 0  # device memory that it has from the driver itself: Carpool does not manage it
    devices: list[str] = []  # all that it has, its own first, if it was submitted for several
    attempt: int = 1  # the number of its present, or next, start
    attempts: list[AttemptInfo] = []  # those that are over, if there has been more than one
    busy_us: int | None = None  # how long its device computed for it; null: not measured
    busy_of_us: int = 0  # within so much of its turn time
    output: str = ""  # the owner's file that has its standard output; empty: the log that Carpool keeps
    error: str = ""  # the owner's file that has its standard error; empty: that of standard output
    held_by: int | None = None  # uid of the user who keeps it from being placed
    paused_by: int | None = None  # uid of the user who keeps it off its device
    paused_us: int = 0  # so long its present attempt has been paused, which its time limit does not count
    unmanaged: str | None = None  # what of it computes without Carpool, as far as that is known
    notify: list[str] = []  # targets that are told of its starts and its end, without paths and arguments
    used_us: int = 0  # device time of all its attempts, for each of its devices
    engine: bool = False  # it is a service that is told when it has requests


class JobList(msgspec.Struct, frozen=True, omit_defaults=True):
    """GET /v1/jobs: jobs in the order of their ids."""

    jobs: list[JobInfo]
    notice: str = ""  # what could not be read of the journal, for people


class JournalListing(msgspec.Struct, frozen=True):
    """The jobs of a journal while no daemon runs (`carpool.daemon.journal.offline`)."""

    as_of_us: int | None  # when its newest event was written, wall clock; null: there is none
    jobs: list[JobInfo]


class LoadInfo(msgspec.Struct, frozen=True):
    """Load of a device over the last 30 seconds, as placement sees it: in millionths, to whole percents."""

    active_ppm: int  # mean of SMACT
    risk_active_ppm: int  # CARMA's collocation risk of SMACT, and so on
    risk_occupancy_ppm: int | None = None
    risk_dram_ppm: int | None = None
    degraded: str = ""  # something else stands in for SMACT, and why


class PlacementRow(msgspec.Struct, frozen=True):
    """One device as it was when it was considered for a job."""

    device: str
    chosen: bool
    refusal: ReasonInfo | None  # why it could not take the job; null: it could
    reluctance: ReasonInfo | None  # which condition it did not meet, so that it was tried last
    free: int
    need: int  # what would be reserved for the job there
    margin: int  # what would have to stay free besides, if others are there
    jobs: list[int]
    warming: list[int]  # those of them that were warming up
    load: LoadInfo | None
    key: list[int]  # the policy's; smaller comes first
    slowdown_ppm: int | None = None  # the largest known between the job and any job there; null: none is known


class PlacementInfo(msgspec.Struct, frozen=True):
    """GET /v1/jobs/{id}/placement: why a job is where it is, or (nothing chosen) why it is not placed at present."""

    job: int
    policy: str
    strict: bool  # devices that do not meet the conditions are closed
    when_us: int  # the core's clock
    rows: list[PlacementRow]  # in the order in which devices are tried
    elements: dict[int, str] = {}  # of the jobs in the rows, elements of arrays, and what they are called: 7_3


class LaneInfo(msgspec.Struct, frozen=True):
    """Memory that jobs of one owner use in turn.

    ``holder``: the job whose turn it is; ``waiting``: those after it, in the order in which they get the turn as it
    looks now.
    """

    id: int
    owner: int
    size_bytes: int
    jobs: list[int]
    holder: int | None
    waiting: list[int]


class ProcessInfo(msgspec.Struct, frozen=True):
    """A process on a device.  ``job`` 0: one of the daemon's own; null: a foreign one.

    ``used_bytes``: of the GPU's memory; on a host device private memory, which is beside the device's.
    """

    pid: int
    used_bytes: int | None
    job: int | None


class MeanInfo(msgspec.Struct, frozen=True):
    """Averages over the samples of the last 30 seconds."""

    samples: int = 0
    busy_ppm: int | None = None
    sm_active_ppm: int | None = None
    sm_occupancy_ppm: int | None = None
    dram_active_ppm: int | None = None
    power_mw: int | None = None


class TelemetryInfo(msgspec.Struct, frozen=True):
    """The last measurement of a device.  Quantities that were not measured are null, and ``missing`` says why."""

    level: str = "none"  # how much is measured: "gpm", "basic", "host" or "none"
    reason: str = ""  # why it is not more
    taken_us: int | None = None  # when the last sample was taken
    age_us: int | None = None  # and how long ago that was
    interval_us: int | None = None  # the pause between two samples
    total_bytes: int | None = None  # memory of the device
    used_bytes: int | None = None  # memory in use at all
    free_bytes: int | None = None  # memory that can be had now; on a host device, that the machine has, too
    reserved_bytes: int | None = None  # memory that the driver keeps for itself
    foreign_bytes: int | None = None  # memory in use that is in no lane or bank: others', contexts, libraries
    processes: list[ProcessInfo] | None = None  # those on the device; host device: those of its jobs
    busy_ppm: int | None = None  # time in which anything ran on the GPU; host device: processors that were not idle
    memory_busy_ppm: int | None = None  # time in which the GPU's memory was read or written
    sm_active_ppm: int | None = None  # SMACT: multiprocessors with work; host device: time in which a job computed
    sm_occupancy_ppm: int | None = (
        None  # SMOCC: warps on them, of those that fit; host device: processors its jobs used
    )
    dram_active_ppm: int | None = None  # DRAMA: memory bandwidth in use
    moved_bytes_per_s: int | None = None  # by Carpool: residue saved, memory offloaded and restored
    jobs_busy_ppm: int | None = None  # time in which the device computed for jobs
    power_mw: int | None = None  # power drawn, milliwatts; host device: by the machine's processors
    power_limit_mw: int | None = None  # the power limit in force
    energy_mj: int | None = None  # millijoules since the driver was loaded; host device: since the daemon first looked
    temperature_c: int | None = None  # degrees Celsius
    clock_mhz: int | None = None  # of the multiprocessors
    clock_limit_mhz: int | None = None  # their highest
    throttled: list[str] | None = None  # why the clock is lower than it could be: power, temperature, hardware
    mig: bool | None = None  # the GPU is partitioned, or the device is an instance of one that is
    mps: bool | None = None  # processes there use an MPS server
    load: LoadInfo | None = None  # what placement knows; null: nothing, or nothing any more
    mean: MeanInfo = MeanInfo()  # averages over the last 30 seconds
    missing: dict[str, str] = {}  # quantity: why it was not measured


class SpanInfo(msgspec.Struct, frozen=True):
    """Values of one quantity in a stretch of time."""

    min: int
    mean: int
    max: int
    samples: int


class PointInfo(msgspec.Struct, frozen=True):
    """Measurements of one step from ``start_us`` on, by quantity; quantities that were not measured are absent."""

    start_us: int
    quantities: dict[str, SpanInfo]


class TelemetryHistory(msgspec.Struct, frozen=True):
    """GET /v1/devices/{device}/telemetry.  Steps without a measurement are left out."""

    device: str
    since_us: int
    until_us: int
    step_us: int
    source: str  # "memory" | "minutes" | "hours": what the points were made of
    points: list[PointInfo]


class DeviceInfo(msgspec.Struct, frozen=True):
    """A device, its memory in bytes, and who shares it."""

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
    alone: int | None = None  # the job that has exclusive use of it
    weights_bytes: int = 0  # weights of models, beside what is granted; what no worker uses is free, too
    drained: str = ""  # why no job is placed there, as in "drained by alice: new fan"; empty: jobs are
    reserve_bytes: int | None = None  # kept for other programs; null: not set
    uuid: str = ""  # of a GPU, as its driver says
    left_bytes: int = 0  # of ``used_bytes``: in no job's grant, left in device buffers by earlier jobs


class StoreInfo(msgspec.Struct, frozen=True):
    """The host store: memory for what has been moved out of devices."""

    budget_bytes: int
    default: bool  # no budget has been set
    kept_bytes: int  # pages that it holds: they stay when memory goes back, for the next time
    used_bytes: int  # the part of them that holds memory of jobs at present


class DeviceList(msgspec.Struct, frozen=True):
    """GET /v1/devices."""

    devices: list[DeviceInfo]
    store: StoreInfo


class DeviceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """PUT /v1/devices/{device}.  What is absent is left alone."""

    quantum_us: int | msgspec.UnsetType | None = msgspec.UNSET  # null: as the settings or the policy say
    oversubscribe: str | msgspec.UnsetType = msgspec.UNSET
    drain: bool | msgspec.UnsetType = msgspec.UNSET  # true: no new job is placed there
    drain_reason: str = ""  # with ``drain``, for people
    reserve_bytes: int | msgspec.UnsetType | None = msgspec.UNSET  # kept for other programs; null: no reserve


class StartSetting(msgspec.Struct, frozen=True):
    """A value that holds until the daemon is started again.  ``source``: `limits.toml`, `carpool up` or `default`."""

    name: str
    value: str
    source: str


class PolicyInfo(msgspec.Struct, frozen=True):
    """GET /v1/policy."""

    name: str
    available: list[str]
    settings: dict[str, int | None]
    fault: str | None = None  # the first fault of a user's policy; where it failed, jobs are served in order of arrival
    placement: str = "magm"  # the placement policy: which device a job is placed on
    placements: list[str] = []  # the available ones
    placement_fault: str | None = None  # the first fault of a user's placement policy; where it failed, `magm` decides
    start: list[StartSetting] = []  # limits.toml and the options of `carpool up`


class LimitInfo(msgspec.Struct, frozen=True):
    """One limit that holds for a user, by its name as a setting or in `limits.toml`.

    ``used``: what counts against it now, in the same unit; null: it is about each job by itself.  ``most`` null: any.
    """

    name: str
    used: int | None
    most: int | None
    text: str  # what it is about, for people


class LogLevelInfo(msgspec.Struct, frozen=True):
    """GET /v1/log-level: debug, info, warning or error.  ``loggers``: those that have their own, by name."""

    level: str
    loggers: dict[str, str]


class LogLevelRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT /v1/log-level.  ``logger``: only of this one and those below it; empty: of all."""

    level: str  # "debug" | "info" | "warning" | "error" | "inherit" (with ``logger``)
    logger: str = ""


class UserLimitsInfo(msgspec.Struct, frozen=True):
    """GET /v1/limits: what one user may have, and has.

    ``used_us``: device time by which `fair` orders users, as it counts now: half of it after each ``half_life_us``.
    """

    uid: int
    user: str
    limits: list[LimitInfo]
    used_us: int
    half_life_us: int


class UserDay(msgspec.Struct, frozen=True):
    """The use by a user's jobs on one day."""

    day: str  # local date of the daemon's, as in 2026-11-26
    uid: int
    user: str
    device_us: int  # device time, for each device of a job; jobs that still run included
    jobs: int  # that ended on the day
    waited_us: int  # of these, the time in which no attempt ran
    ended: dict[str, int]  # how many of them ended how, by `JobInfo.outcome`


class DeviceDay(msgspec.Struct, frozen=True):
    """The share of one day's time in which a device computed for jobs."""

    day: str
    device: str
    busy_ppm: int | None  # time in which it computed for jobs, mean of the samples; null: there are none


class UsageHistory(msgspec.Struct, frozen=True):
    """GET /v1/usage: whole days, of which the first begins at ``since_us``."""

    since_us: int
    until_us: int
    days: list[UserDay]  # those with anything in them
    devices: list[DeviceDay]


class PolicyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT /v1/policy.  ``settings`` has settings by name, and `group.NAME` and
    `user_running.USER` (name or uid) for limits with a name.
    """

    name: str | None = None
    settings: dict[str, int | None] = {}
    placement: str | None = None


class ControlGroups(msgspec.Struct, frozen=True):
    """The daemon's use of control groups: for people, one line each."""

    found: str = ""  # where groups are, and which limits hold; empty: not known yet
    problems: list[str] = []  # limits in limits.toml that do not hold


class VersionInfo(msgspec.Struct, frozen=True):
    """GET /v1/version."""

    version: str
    api: int
    pid: int
    home: str
    uid: int
    started_us: int
    control_groups: ControlGroups = ControlGroups()
    threads: int | None = None  # OpenMP threads per job; null: as the job says


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


class TurnsOfBin(NamedTuple):
    """One turn, or ``turns`` of them that begin in the same bin.  Times are the wall clock's.

    ``job``: the one with most time in it, None where the caller may not know; ``cause``: how the last one ended, empty
    while it goes on; ``busy_us``: the time in which any had the turn.
    """

    begin_us: int
    end_us: int
    job: int | None
    turns: int
    cause: str  # "boundary" | "early" | "forced" | "exit" | "paused" | "left" | "failed" | "ended" | "unknown" | ""
    busy_us: int


class LaneTurns(msgspec.Struct, frozen=True):
    """The turns of one lane: in order, without overlaps, at most one that begins in each bin."""

    device: str
    lane: int
    turns: list[TurnsOfBin]


class TurnHistory(msgspec.Struct, frozen=True):
    """GET /v1/turns.  Lanes without a turn in that time are left out."""

    since_us: int
    until_us: int
    kept_from_us: int | None  # the oldest time of which anything is kept
    lanes: list[LaneTurns]
