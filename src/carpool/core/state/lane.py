"""A lane: jobs of one owner that take turns on a device."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from carpool.core.model import DeviceId, JobId, LaneId, Micros
from carpool.core.state.job import HISTORY
from carpool.core.state.preempt_state import UNDISTURBED, Preempt
from carpool.core.state.turn_state import TurnKey


class YieldAsked(IntEnum):
    """Whether the holder has been asked to end its turn for jobs that are no services."""

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
    reclaimed: bool = False  # other programs need the holder's memory (`core.memory.shortfall`)
    watch_us: Micros | None = None  # the holder loses its turn after so long off the device, as it was told
    forced_due: Micros = 0  # when the holder that has been asked will be forced
    due: tuple[JobId, Micros] | None = None  # when the turn is to be asked back, and for whom
    turn_us: Micros = 0  # start of the present turn
    turn_base_us: Micros = 0  # the holder's attained time at that moment
    preempt: Preempt = UNDISTURBED  # how far services have preempted the holder
    protected_until_us: Micros = 0  # no holder is preempted before: one had a signal to handle
    virtual_us: Micros = 0  # how far it has come; a newcomer to a lane without other jobs starts here
    history: deque[tuple[Micros, object]] = field(default_factory=lambda: deque(maxlen=HISTORY))
