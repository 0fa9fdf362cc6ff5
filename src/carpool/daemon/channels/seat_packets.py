"""Packets of attached processes: each becomes an event of the core, or answers a request of the daemon."""

from __future__ import annotations

import logging
from collections.abc import Callable

from carpool.core.events import Event, MemoryRequested, MemoryReturned, RequestWithdrawn, TurnWanted
from carpool.core.model import Demand, MemoryClass
from carpool.daemon.channels.attach import Attaching
from carpool.daemon.jobs.table import JobRecord, Seated
from carpool.daemon.memory.parts import MemoryParts
from carpool.daemon.seats.record import is_answered, is_before, live_bytes, needed
from carpool.daemon.seats.services import TurnPauses, answer_demand, demand_in, is_met
from carpool.daemon.seats.turns import Turns
from carpool.daemon.system.log_limit import caused_by
from carpool.protocol.seat import Packet, PacketType, Placed, SeatWords

log = logging.getLogger(__name__)
#: Classes of memory, by their numbers in packets.
CLASSES = (MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL)
Handler = Callable[[JobRecord, Seated, Packet], None]
_ABOUT_MEMORY = (PacketType.GROW, PacketType.WITHDRAWN, PacketType.SHRUNK)


class SeatPackets:
    """Handles packets, with one small method for each type; turns are read from the seats before any is called."""

    def __init__(
        self,
        turns: Turns,
        pauses: TurnPauses,
        memory: MemoryParts,
        attaching: Attaching,
        post: Callable[[Event], None],
    ) -> None:
        self._turns = turns
        self._pauses = pauses
        self._granting = memory.granting
        self._supply = memory.supply
        self._offloads = memory.offloads
        self._attaching = attaching
        self._post = post
        self._table: dict[PacketType, Handler] = {
            PacketType.WANT: self._wanted,
            PacketType.URGENT: self._wanted,
            PacketType.PAUSED: self._paused,
            PacketType.RELEASED: self._turn_ended,
            PacketType.PASSED: self._turn_ended,
            PacketType.GROW: self._grow,
            PacketType.WITHDRAWN: self._withdrawn,
            PacketType.SHRUNK: self._shrunk,
            PacketType.LEFT: self._left,
            PacketType.OFFLOADED: self._offloaded,
            PacketType.CUT_DONE: self._cut_done,
        }

    def handle(self, job: JobRecord, seated: Seated, packet: Packet) -> None:
        """Handle a packet from the channel of the job's seat."""
        self._turns.sync(job.lane)
        handler = self._table.get(packet.type)
        if handler is None or (packet.type in _ABOUT_MEMORY and packet.a >= len(CLASSES)):
            _unexpected(job, packet)
        else:
            handler(job, seated, packet)

    def ask(
        self, job: JobRecord, kind: MemoryClass, total: int, *, optional: bool, keeps_turn: bool, packs: bool
    ) -> None:
        """Tell the core that the attached process waits for memory; ``job.grow_seq`` is the number of its request."""
        alive = None if optional else live_bytes(job.attached.seat)
        self._post(MemoryRequested(job.id, kind, total, optional, keeps_turn, packs, alive))

    # Turns

    def _wanted(self, job: JobRecord, seated: Seated, packet: Packet) -> None:
        demand, urgent = None, packet.type is PacketType.URGENT
        if job.spec.service is not None or packet.a:
            words = seated.seat.snapshot()
            if job.spec.service is not None and is_met(words, packet.a):
                return  # read after a restart, which has found it in the seat
            if packet.a and packet.a != words.demand_seq:
                return  # a later one follows
            demand = self._demand(job, seated, words) if packet.a else None
        self._post(TurnWanted(job.id, urgent=urgent, demand=demand))

    def _demand(self, job: JobRecord, seated: Seated, words: SeatWords) -> Demand | None:
        """Return the demand of a service; a job that is no service is told so."""
        if job.spec.service is not None:
            return demand_in(words)
        answer_demand(seated, Placed.NO_SERVICE, words.demand_seq)
        return None

    def _turn_ended(self, job: JobRecord, seated: Seated, packet: Packet) -> None:
        """Do nothing: the sync has seen the end of the turn in the seat."""

    def _paused(self, job: JobRecord, seated: Seated, packet: Packet) -> None:
        self._pauses.answered(job, packet.a)

    # Memory

    def _grow(self, job: JobRecord, seated: Seated, packet: Packet) -> None:
        # After a restart the request may have been answered from the seat, or a later one has been found there.
        if not is_answered(seated.seat, packet.c) and not is_before(packet.c, job.grow_seq):
            job.grow_seq = packet.c & 0xFFFFFFFF  # the seat's word
            optional, keeps_turn, packs = (bool(packet.d & bit) for bit in (1, 2, 4))
            kind = CLASSES[packet.a]
            self.ask(job, kind, packet.b, optional=optional, keeps_turn=keeps_turn, packs=packs)

    def _withdrawn(self, job: JobRecord, seated: Seated, packet: Packet) -> None:
        # Another number: a later request has been found in the seat, after a restart, or it has been answered.
        if packet.c == job.grow_seq and not is_answered(seated.seat, packet.c):
            self._withdraw(job, seated, CLASSES[packet.a])

    def _withdraw(self, job: JobRecord, seated: Seated, kind: MemoryClass) -> None:
        if self._granting.withdraw(job):
            self._post(MemoryReturned(job.id, kind, needed(seated.seat, kind)))
        else:
            self._post(RequestWithdrawn(job.id, kind))

    def _shrunk(self, job: JobRecord, seated: Seated, packet: Packet) -> None:
        self._post(MemoryReturned(job.id, CLASSES[packet.a], packet.b))

    # Answers

    def _left(self, job: JobRecord, seated: Seated, packet: Packet) -> None:
        self._attaching.left(job)

    def _offloaded(self, job: JobRecord, seated: Seated, packet: Packet) -> None:
        self._offloads.answered(job, packet)

    def _cut_done(self, job: JobRecord, seated: Seated, packet: Packet) -> None:
        if not seated.extents:
            _unexpected(job, packet)
            return
        self._supply.answered(job, packet)
        self._granting.everywhere()


def _unexpected(job: JobRecord, packet: Packet) -> None:
    log.warning("job %d sent an unexpected packet: %r", job.id, packet, extra=caused_by(job.owner))
