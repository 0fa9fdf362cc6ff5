"""Tables of transitions: which cause may come in which state, what is done about it, and which state may follow.

Three things of a job's seat have one each: its turn (`core.turns.turns`), the preemption of the holder of a lane
(`core.memory.preemption`) and the residency of its memory (`core.memory.residency`).  The phases of a job are another,
in which an event may mean several things (`core.lifecycle.transitions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from carpool.core.events import InvariantError

#: The type of an event, or the name of something that the core itself decides.
Cause = type | str
S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Edge(Generic[S]):
    """What is done about a cause in one state, and the states that may follow."""

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
