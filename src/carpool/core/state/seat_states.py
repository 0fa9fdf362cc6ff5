"""The states of a job's seat, each with the data valid in it, and tables of their transitions.

Three things of a seat have a table each: its turn (`core.turns.turns`), the preemption of the holder of a lane
(`core.memory.preemption`) and the residency of its memory (`core.memory.residency`).  The phases of a job are another,
in which an event may mean several things (`core.lifecycle.legality`).

A *preempted* holder makes way for a service and keeps its turn: `PauseTurn` closes its seat, nothing is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from carpool.core.events import InvariantError
from carpool.core.model import Demand, JobId, Memory, Micros
from carpool.core.policies.base import Key

#: The type of an event, or the name of something that the core itself decides.
Cause = type | str
S = TypeVar("S", bound=StrEnum)
#: (0 urgent | 1, the policy's key, number of the want, job)
TurnKey = tuple[int, Key, int, JobId]
NOTHING = Memory()


@dataclass(frozen=True, slots=True)
class Edge(Generic[S]):
    """The handler of a cause in one state, and the states that may follow."""

    run: Callable[..., None]
    to: tuple[S, ...]


class Table(Generic[S]):
    """The edges of all states.  A cause that is missing in a state's row is illegal there."""

    def __init__(self, rows: Mapping[S, Mapping[Cause, Edge[S]]]) -> None:
        self.rows = rows

    def legal(self, state: S, cause: Cause) -> bool:
        """Whether the cause may come in that state."""
        return cause in self.rows[state]

    def act(self, state: S, cause: Cause) -> Callable[..., None]:
        """Return what to do about the cause.

        Raises InvariantError where it is illegal: ask `legal` about events first.
        """
        edge = self.rows[state].get(cause)
        if edge is None:
            raise InvariantError(f"{_name(cause)} cannot come in the state {state}")
        return edge.run

    def mermaid(self, first: S) -> str:
        """Return the table as a Mermaid state diagram that begins in the state ``first``."""
        rows = {state: {cause: edge.to for cause, edge in row.items()} for state, row in self.rows.items()}
        return "\n".join(["stateDiagram-v2", f"    [*] --> {first}", *edges(rows)]) + "\n"


def edges(rows: Mapping[S, Mapping[Cause, Iterable[S]]]) -> list[str]:
    """Return one line of a Mermaid diagram per pair of states; causes that lead from one to the other share it."""
    lines = []
    for state, row in rows.items():
        causes: dict[S, list[str]] = {}
        for cause, targets in row.items():
            for target in targets:
                causes.setdefault(target, []).append(_name(cause))
        lines += [f"    {state} --> {target}: {', '.join(names)}" for target, names in causes.items()]
    return lines


def _name(cause: Cause) -> str:
    return cause if isinstance(cause, str) else cause.__name__


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
    """The wish of a holder for a turn after its present one."""

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


class ResidencyState(StrEnum):
    """The states of a job's memory."""

    RESIDENT = "resident"
    LEAVING = "leaving"
    ASIDE = "aside"
    LEAVING_ASIDE = "leaving_aside"


@dataclass(frozen=True, slots=True)
class Resident:
    """All memory that the job has been granted is on the device."""

    state: ClassVar[ResidencyState] = ResidencyState.RESIDENT
    aside: ClassVar[bool] = False
    leaving: ClassVar[bool] = False
    stored: ClassVar[Memory] = NOTHING


@dataclass(frozen=True, slots=True)
class Leaving:
    """The job has been asked to move its persistent memory out (`Offload`); the answer is still to come."""

    state: ClassVar[ResidencyState] = ResidencyState.LEAVING
    aside: ClassVar[bool] = False
    leaving: ClassVar[bool] = True
    stored: ClassVar[Memory] = NOTHING


@dataclass(frozen=True, slots=True)
class Aside:
    """The job's limits have been lowered: its memory is in the host store, or its part of the lane was given up."""

    state: ClassVar[ResidencyState] = ResidencyState.ASIDE
    aside: ClassVar[bool] = True
    leaving: ClassVar[bool] = False
    stored: Memory  # its limits before; they have to be granted again before its next turn


@dataclass(frozen=True, slots=True)
class LeavingAside:
    """A part of the memory has been set aside already, and the rest has been asked to leave, too."""

    state: ClassVar[ResidencyState] = ResidencyState.LEAVING_ASIDE
    aside: ClassVar[bool] = True
    leaving: ClassVar[bool] = True
    stored: Memory


Residency = Resident | Leaving | Aside | LeavingAside
RESIDENT, LEAVING = Resident(), Leaving()


def set_aside(residency: Residency, stored: Memory) -> Aside | LeavingAside:
    """Return the state with ``stored`` set aside in all; whether the rest is leaving does not change."""
    return LeavingAside(stored) if residency.leaving else Aside(stored)


class PreemptState(StrEnum):
    """The stage to which the holder of a lane has been preempted."""

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
        """Return the state of the wait for a boundary."""
        return PreemptState.FORCED if self.forced else PreemptState.BOUNDARY


@dataclass(frozen=True, slots=True)
class Paused:
    """The holder computes nothing; what it attains does not grow from ``since_us`` on."""

    state: ClassVar[PreemptState] = PreemptState.PAUSED
    since_us: Micros


Preempt = Undisturbed | PauseAsked | Paused
UNDISTURBED = Undisturbed()
