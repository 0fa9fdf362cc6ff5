"""The turn of a job that has a seat: it wants none, waits for one, or has one.  Each state has the data valid in it.

The transitions are a table in `core.turns.turns`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from carpool.core.model import Demand, JobId
from carpool.core.policies.base import Key

#: (0 urgent | 1, the policy's key, number of the want, job)
TurnKey = tuple[int, Key, int, JobId]


class TurnState(StrEnum):
    """The states of a job's turn."""

    IDLE = "idle"
    WAITING = "waiting"
    HOLDING = "holding"


@dataclass(frozen=True, slots=True)
class Idle:
    """The job wants no turn."""

    state: ClassVar[TurnState] = TurnState.IDLE
    urgent: ClassVar[bool] = False
    key: ClassVar[TurnKey | None] = None


@dataclass(slots=True)
class Waiting:
    """The job is stopped until it has a turn."""

    state: ClassVar[TurnState] = TurnState.WAITING
    number: int  # orders wants of equal keys
    urgent: bool  # a signal waits to be handled
    key: TurnKey | None = None  # its place in the lane's queue; None while it could not compute there


@dataclass(frozen=True, slots=True)
class NextTurn:
    """What a holder wants after its present turn."""

    urgent: bool
    demand: Demand | None  # of a service


@dataclass(frozen=True, slots=True)
class Holding:
    """The job has the turn of its lane (`Lane.holder`)."""

    state: ClassVar[TurnState] = TurnState.HOLDING
    key: ClassVar[TurnKey | None] = None
    again: NextTurn | None = None

    @property
    def urgent(self) -> bool:
        """Whether a signal waits to be handled: it came while another thread let go, or while the job was paused."""
        return self.again is not None and self.again.urgent


Turn = Idle | Waiting | Holding
IDLE = Idle()
HOLDING = Holding()
