"""Views of the core for policies and the daemon: values that do not change any more.

Policies get a `View` whose records are made when they are asked for; `Machine.view` returns one that is complete.
Records are named tuples, which are made in a third of the time of a frozen dataclass: one is made in every decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from carpool.core.model import (
    DeviceId,
    JobId,
    JobPhase,
    LaneId,
    Load,
    Memory,
    Micros,
    Outcome,
    Oversubscribe,
    Reason,
    Settings,
    Sharing,
    Usage,
)


class JobView(NamedTuple):
    """One job.  Sizes are bytes, times microseconds; ``*_us`` figures include the present turn up to ``View.now``."""

    id: JobId
    name: str
    owner: int
    weight: int
    arrival: int  # 0, 1, 2 ... in order of submission
    phase: JobPhase
    outcome: Outcome | None
    device: DeviceId | None
    lane: LaneId | None
    gang: int  # devices that it needs at once
    devices: tuple[DeviceId, ...]  # whole devices that it holds
    granted: Memory  # its limits
    reserved: Memory  # what the core keeps for it: its limits, or more while a hint has not been checked
    waiting_memory: bool
    requested: Memory | None  # totals it waits for; a class it does not wait for is 0
    attached: bool
    offloaded: bool
    reload_us: Micros  # what it would take, or takes, to bring its persistent memory back from the host store
    idle_since_us: Micros  # when it last let go of a turn or got memory; of interest while it wants nothing
    measured: bool  # has done `Settings.measured_after` iterations
    holder: bool
    waiting: bool  # waits for a turn
    waiting_since_us: Micros | None
    urgent: bool
    usage: Usage
    attained_us: Micros  # device time it has had
    iteration_us: Micros | None  # device time per iteration
    iterations_total: int | None
    remaining_us: Micros | None  # device time it still needs; None: unknown
    virtual_us: Micros  # device time by weight, levelled with the others of its lane (see `fair`)
    submitted_us: Micros
    started_us: Micros | None
    reason: Reason | None  # of an ended job; `Machine.explain` for those that wait
    alone: str | None = None  # why it must have its device to itself, beside what it was submitted with
    immovable: str | None = None  # why its memory is never offloaded


class LaneView(NamedTuple):
    """One lane.  Sizes are bytes."""

    id: LaneId
    device: DeviceId
    owner: int
    size: int
    jobs: tuple[JobId, ...]
    holder: JobId | None
    successor: JobId | None
    waiting: tuple[JobId, ...]  # in the order in which they will get the turn
    yield_asked: bool
    paused: bool = False  # its holder is closed, for the sake of a service


class DeviceView(NamedTuple):
    """One device.  Sizes are bytes, times microseconds."""

    id: DeviceId
    capacity: int
    free: int
    persistent: int  # sum of persistent reservations
    lanes: tuple[LaneId, ...]
    jobs: tuple[JobId, ...]
    grower: JobId | None
    reservation: JobId | None
    max_lanes: int | None
    oversubscribe: Oversubscribe
    offloaded: tuple[JobId, ...]  # jobs whose memory is in the host store
    quantum_us: Micros
    foreign: int = 0  # bytes that jobs cannot have: in use, but not by grant, or kept for other programs
    sharing: Sharing = Sharing.CONCURRENT
    alone: JobId | None = None  # the job that has exclusive use of it
    position: int = 0  # 0, 1, 2 ... in the order in which devices were added
    last_placed: int = 0  # number of the last placement there; larger is later, 0: never
    warming: tuple[JobId, ...] = ()  # new jobs that are warming up (`Settings.warm_window_us`)
    measured: bool = False  # whether there is telemetry of it at all
    load: Load | None = None  # what it does according to that; None: unknown (by now)
    weights: int = 0  # bytes of services' weights; unused weights are counted as free, too


@dataclass(frozen=True, slots=True)
class View:
    """The core at one moment.  Policies get one that moves on with the core: they must not keep it."""

    now: Micros
    settings: Settings
    jobs: Mapping[JobId, JobView]
    lanes: Mapping[LaneId, LaneView]
    devices: Mapping[DeviceId, DeviceView]
    quanta: Mapping[DeviceId | None, Micros]  # time quantum of each device; of None: where there is no device
    queue: tuple[JobId, ...] = ()  # ready jobs in the order of admission (complete views only)
    policy: str = ""


K = TypeVar("K")
V = TypeVar("V")


class LazyMap(Mapping[K, V]):
    """A mapping whose values are made when they are looked up."""

    __slots__ = ("_items", "_make")

    def __init__(self, items: Mapping[K, object], make: Callable[[K], V]) -> None:
        self._items = items
        self._make = make

    def __getitem__(self, key: K) -> V:
        if key not in self._items:
            raise KeyError(key)
        return self._make(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
