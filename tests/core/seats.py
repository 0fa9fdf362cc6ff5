"""A modelled world: jobs with seats, channels and real (counted) memory, as the contract describes them.

Packets of one job arrive in order, those of different jobs in any order: which is delivered next, and which job moves
next, is decided by the test.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from carpool.core import events
from carpool.core.model import Cause, JobId, LaneId, Memory, MemoryClass, Usage

P, E = MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL
Packet = tuple[int, events.Event]  # number of the turn it ends (0: none), event


@dataclass
class Program:
    """What a job does: build ``persistent`` bytes, then iterations that need ``steps`` ephemeral bytes one by one."""

    persistent: int
    steps: tuple[int, ...]
    iterations: int
    code: int = 0
    attaches: bool = True
    alone: str | None = None  # what turns out when it has built: why it must have its device to itself
    immovable: str | None = None  # and why it must never be offloaded


@dataclass(eq=False)
class Process:
    """The seat and the program counter of one job."""

    id: JobId
    program: Program
    lane: LaneId | None = None
    alive: bool = False
    attached: bool = False
    turn: bool = False
    want: bool = False
    yield_: int = 0
    successor: JobId | None = None
    limit: Memory = field(default_factory=Memory)
    asked: tuple[MemoryClass, int] | None = None
    offload: bool = False
    offloaded: bool = False
    bankless: bool = False  # the daemon has heard that it was offloaded
    watched: bool = False
    kept: int = 0  # bytes of the host store
    unwilling: int = 0  # so many offloads fail
    turns: int = 0  # passed_seq
    may_be_named_awake: bool = False  # after a restart a want may be heard twice
    done: int = 0
    at: int = -1  # -1: building; 0..n: steps of an iteration; n: on the CPU
    used: Memory = field(default_factory=Memory)
    device_us: int = 0
    alone: str | None = None  # why it must have its device to itself
    immovable: str | None = None  # why it must never be offloaded
    channel: deque[Packet] = field(default_factory=deque)

    @property
    def blocked(self) -> bool:
        return self.asked is not None or (self.want and not self.turn)

    def usage(self) -> Usage:
        return Usage(
            persistent_peak=self.used.persistent,
            ephemeral_peak=self.used.ephemeral,
            iterations=self.done,
            device_us=self.device_us,
            switch_cost_us=20,
            kept=self.kept,
            stored=self.used.persistent if self.offloaded else 0,
        )

    def send(self, event: events.Event, turn: int = 0) -> None:
        self.channel.append((turn, event))

    def needs(self, kind: MemoryClass, total: int) -> bool:
        """Ask for memory if the limit does not cover it; True while it has to wait."""
        limit = self.limit.persistent if kind is P else self.limit.ephemeral
        if total <= limit and not self.offloaded:
            self.used = (
                Memory(max(self.used.persistent, total), self.used.ephemeral)
                if kind is P
                else Memory(self.used.persistent, max(self.used.ephemeral, total))
            )
            return False
        if total <= limit:
            return False  # its memory comes back with its next turn
        self.asked = (kind, total)
        self.send(events.MemoryRequested(self.id, kind, total))
        return True

    def touches(self) -> bool:
        """Trap without a turn; True while it has to wait."""
        if self.turn:
            return False
        if not self.want:
            self.want = True
            self.send(events.TurnWanted(self.id))
        return True

    def let_go(self, cause: Cause, processes: dict[JobId, Process]) -> None:
        """Give the turn to the successor in the seat, or back."""
        self.turn, self.yield_, self.watched, self.turns = False, 0, False, self.turns + 1
        number, self.successor = self.successor, None
        if number is None:
            self.send(events.TurnReleased(self.id, cause, self.usage()), self.turns)
            return
        heir = processes[number]
        assert heir.alive and not heir.turn, f"job {self.id} passes to {number}, which computes or is dead"
        assert heir.want or heir.may_be_named_awake, f"job {self.id} passes to {number}, which does not wait"
        assert not heir.offloaded, f"job {self.id} passes to {number}, whose memory is not there"
        heir.turn, heir.want, heir.successor = True, False, None
        self.send(events.TurnPassed(self.id, number, cause, self.usage()), self.turns)
