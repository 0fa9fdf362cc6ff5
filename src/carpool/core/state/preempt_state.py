"""What the holder of a lane has been asked for the sake of a service, and has done.

A *preempted* holder makes way for a service and keeps its turn: `PauseTurn` closes its seat, nothing is saved.  The
transitions are a table in `core.memory.preemption`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from carpool.core.model import Micros


class PreemptState(StrEnum):
    """How far the holder of a lane has been preempted."""

    NONE = "undisturbed"
    BOUNDARY = "asked_at_boundary"
    FORCED = "asked_at_once"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """No service needs the holder to pause; or the lane has no holder."""

    state: ClassVar[PreemptState] = PreemptState.NONE


@dataclass(frozen=True, slots=True)
class PauseAsked:
    """The holder is to pause at its next boundary; from ``latest_us`` on, or if ``forced``, at once."""

    since_us: Micros
    latest_us: Micros
    forced: bool

    @property
    def state(self) -> PreemptState:
        """Whether a boundary is waited for, as a state."""
        return PreemptState.FORCED if self.forced else PreemptState.BOUNDARY


@dataclass(frozen=True, slots=True)
class Paused:
    """The holder computes nothing; what it attains does not grow from ``since_us`` on."""

    state: ClassVar[PreemptState] = PreemptState.PAUSED
    since_us: Micros


Preempt = Undisturbed | PauseAsked | Paused
UNDISTURBED = Undisturbed()
