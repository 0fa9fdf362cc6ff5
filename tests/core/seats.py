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
    out_of_memory: int = 0  # so many attempts end because it runs out of memory


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
    request: int = 0  # number of its latest request for memory
    known: int = 0  # number of the latest one that the daemon has heard of
    answered: int = 0  # number of the latest one answered
    left: MemoryClass | None = None  # the class of one that it has withdrawn
    numbers: deque[int] = field(default_factory=deque)  # which requests the packets about memory mean
    offload: bool = False
    offloaded: bool = False
    bankless: bool = False  # the daemon has heard that it was offloaded
    watched: bool = False
    pause: int = 0  # 1: asked to pause at its boundary, 2: at once
    paused: bool = False
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
        if self.answered < self.request and self.left is not kind:
            return True  # an answer does not say which class it is about
        self.asked, self.left, self.request = (kind, total), None, self.request + 1
        self._send_about_memory(events.MemoryRequested(self.id, kind, total))
        return True

    def withdraws(self) -> None:
        """Ctrl-C: the program goes on, and may ask for something else."""
        assert self.asked is not None
        self.left, self.asked = self.asked[0], None
        self._send_about_memory(events.RequestWithdrawn(self.id, self.left))

    def _send_about_memory(self, event: events.MemoryRequested | events.RequestWithdrawn) -> None:
        self.numbers.append(self.request)
        self.send(event)

    def hears(self, event: events.Event) -> bool:
        """What the daemon knows when it reads a packet; False: the seat says that it means nothing any more."""
        if isinstance(event, events.MemoryRequested):
            number = self.numbers.popleft()
            if number == self.answered:
                return False
            self.known = number
        elif isinstance(event, events.RequestWithdrawn):
            number = self.numbers.popleft()
            return number == self.known != self.answered
        return True

    def is_answered(self) -> bool:
        """True: that is what it waits for."""
        self.answered = self.known
        return self.asked is not None and self.known == self.request

    def outlives_daemon(self) -> bool:
        """The next one finds the latest request in the seat; True: somebody waits for it."""
        self.known = self.request
        if self.asked is None:
            self.answered = self.request  # denied at once, where it was withdrawn
        return self.asked is not None

    def touches(self) -> bool:
        """Trap without a turn; True while it has to wait."""
        if self.turn:
            return False
        if not self.want:
            self.want = True
            self.send(events.TurnWanted(self.id))
        return True

    def pauses(self) -> None:
        """Close, save nothing."""
        self.turn, self.yield_, self.watched, self.turns = False, 0, False, self.turns + 1
        self.pause, self.paused = 0, True
        self.send(events.TurnPaused(self.id, self.usage()), self.turns)

    def let_go(self, cause: Cause, processes: dict[JobId, Process]) -> None:
        """Give the turn to the successor in the seat, or back."""
        self.turn, self.yield_, self.watched, self.turns = False, 0, False, self.turns + 1
        self.pause, self.paused = 0, False
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
