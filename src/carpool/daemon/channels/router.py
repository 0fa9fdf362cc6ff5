"""The job channels: packets of attached processes become events of the core."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from functools import partial

from carpool.core.events import Event, MemoryRequested, MemoryReturned, RequestWithdrawn, TurnWanted
from carpool.core.model import DeviceId, JobId, MemoryClass
from carpool.core.policies.view import DeviceView
from carpool.daemon.channels.attach import Attaching
from carpool.daemon.channels.companions import Companions
from carpool.daemon.channels.connections import INHERITED, PREFIX, Line, Lines
from carpool.daemon.jobs.seat_table import BoardError
from carpool.daemon.jobs.table import Job, JobTable
from carpool.daemon.memory.bank_holders import Banking
from carpool.daemon.memory.copies import Copies
from carpool.daemon.memory.driver_memory import DriverMemory
from carpool.daemon.memory.extents import Supply
from carpool.daemon.memory.grants import Granting
from carpool.daemon.memory.offload import Offloads
from carpool.daemon.memory.restore import Returning
from carpool.daemon.memory.weights import WeightFiles
from carpool.daemon.memory.weights_adoption import FoundWeights
from carpool.daemon.seats.adoption import Adopting
from carpool.daemon.seats.allocator import Seating
from carpool.daemon.seats.demands import answer_demand, demand_of, is_met
from carpool.daemon.seats.kept_fds import COMPANION, weights_in
from carpool.daemon.seats.pauses import Pauses
from carpool.daemon.seats.record import is_answered, is_before, needed
from carpool.daemon.seats.turns import Turns
from carpool.devices.base import in_extents
from carpool.protocol.seat import PACKET_BYTES, PROTOCOL, SEATS, Packet, PacketType, Placed
from carpool.protocol.session import Register

log = logging.getLogger(__name__)
CLASSES = (MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL)


def _by_name(names: list[str], fds: list[int]) -> dict[str, int]:
    """What a shim keeps.  Owns the descriptors: those without a name of their own are closed."""
    kept: dict[str, int] = {}
    for place, fd in enumerate(fds):
        if place < len(names) and names[place] not in kept:
            kept[names[place]] = fd
        else:
            os.close(fd)
    return kept


class Channels:
    """The daemon's ends of the job channels."""

    def __init__(
        self, jobs: JobTable, seating: Seating, view: Callable[[DeviceId], DeviceView], post: Callable[[Event], None]
    ) -> None:
        self._jobs = jobs
        self._seating = seating
        self._post = post
        self.turns = Turns(jobs, seating, post)
        self.banking = Banking(seating, self.send)
        self.adopting = Adopting(seating)
        self.copies = Copies(seating)
        seating.copying = self.copies.under_way
        self.offloads = Offloads(seating, self.banking, self.copies, self.turns, post)
        self.supply = Supply(jobs, seating, self.banking, self.send)
        returning = Returning(self.supply, self.copies, self._quiet)
        self.granting = Granting(seating, self.banking, returning)
        self.pauses = Pauses(post)
        self.weights = WeightFiles(jobs, seating, self.send)
        self.found_weights = FoundWeights(jobs, seating, self.weights)
        self.granting.before_turn = self.weights.obstacle
        self.offloads.again = returning.again = self.granting.again
        for device in seating.devices.values():
            if in_extents(device):
                device.on_bank_cut = partial(self.supply.bank_was_cut, device.id)
        self.copies.freed = self.granting.everywhere
        seating.freed = self._left
        self._attaching = Attaching(jobs, seating, self.turns, post)
        self._attaching.answer, self._attaching.drain = self.answer, self._drain
        self._attaching.settled = self._settled
        self._attaching.forget = self._forget
        self._attaching.granted = lambda job: self.granting.memory(job, answers=False)
        self._lines = Lines()
        self.driver_memory = DriverMemory(jobs, seating, view, post)
        self.companions = Companions(jobs, seating, self.turns, self.driver_memory, view, post)
        self.companions.answer = self.answer
        self._attaching.companions = self.companions
        self.shim_quiet: Callable[[JobId], bool] = lambda job: True
        self.recovering = False  # while true nothing is read: the core does not know the jobs yet

    def on_use(self, used: Callable[[Job], None]) -> None:
        """Who is to hear that a process of a job has got its seat."""
        self._attaching.used = used

    def open(self, job: Job, fds: list[int], message: Register) -> bool:
        """A shim has registered: the channel's end first, then what it kept for an earlier daemon.

        False if it has come back with memory in use after the core had been told that the job uses none, or with
        memory that only a daemon of another version knows, or not with what a shim keeps.
        """
        self.close(job.id)
        kept = _by_name(message.kept, fds[1:])
        try:
            self._add(job, INHERITED, fds[0])
            for name in [name for name in kept if name.startswith(PREFIX)]:
                self._add(job, name, kept.pop(name))
            for name in weights_in(kept):
                self._weights(job, name, kept)
            for name in [name for name in kept if name.startswith(f"{COMPANION}:")]:
                self._companion(job, name, kept, message.child_pid)
        except (BoardError, OSError, ValueError) as error:
            log.warning("job %d comes back with something else: %s", job.id, error)
            for fd in kept.values():
                os.close(fd)
            return False
        in_time = True
        if job.seated is not None or message.attached_pid is None:
            for fd in kept.values():
                os.close(fd)
        elif self.recovering:
            in_time = self.adopting.adopt(job, kept, message.attached_pid)
            self._find_line(job, message.attached_pid)
        else:
            for fd in kept.values():
                os.close(fd)
            in_time = False
        if not self.recovering:
            self.resume(job)
        return in_time

    def _weights(self, job: Job, name: str, kept: dict[str, int]) -> None:
        """Unless this daemon knows them, after a shim has only come back.  Raises OSError, ValueError."""
        if self.recovering:
            self.found_weights.adopt(job, name, kept[name])
            del kept[name]
        else:
            os.close(kept.pop(name))

    def _companion(self, job: Job, name: str, kept: dict[str, int], main_pid: int | None) -> None:
        """One that an earlier daemon seated; unless this one knows it, after a shim has only come back.

        Raises BoardError, OSError, ValueError.
        """
        _, device, slot, pid = name.split(":")
        line = next((line for line in self._lines.all(job.id) if line.pid == int(pid)), None)
        if line is None and int(pid) == main_pid:
            line = self._lines.get(job.id, INHERITED)
        if line is None or not self.recovering:
            os.close(kept.pop(name))
        elif device not in self._seating.devices or not 0 <= int(slot) < SEATS:
            raise ValueError(f"there is no seat {name}")
        else:
            self.companions.adopt(job, line, name, self.adopting.board(device, job.owner, kept, name))

    def bring(self, job: Job, name: str, fd: int) -> None:
        """Another process of the job has come through its door."""
        try:
            line = self._add(job, name, fd)
        except (OSError, ValueError) as error:
            log.warning("job %d brings something else than a channel: %s", job.id, error)
            return
        if not self.recovering:
            self._listen(line)

    def resume(self, job: Job) -> None:
        """Start reading; watch the attached process."""
        lines = self._lines.all(job.id)
        for line in lines:
            self._listen(line)
        if lines:
            self._attaching.watch(job)
            self.companions.resume(job, [line for line in lines if line.name not in (INHERITED, job.line)])

    def ask(self, job: Job, kind: MemoryClass, total: int, *, optional: bool) -> None:
        """The attached process waits for memory; ``job.grow_seq`` is the number of its request."""
        self._post(MemoryRequested(job.id, kind, total, optional=optional))

    def _wanted(self, job: Job, packet: Packet) -> None:
        assert job.seated is not None
        demand, urgent = None, packet.type is PacketType.URGENT
        if job.spec.service is not None and is_met(job.seated.seat, packet.a):
            return  # read after a restart, which has found it in the seat
        if packet.a:
            if packet.a != job.seated.seat.get("demand_seq"):
                return  # a later one follows
            demand = demand_of(job)
            if job.spec.service is None:
                answer_demand(job, Placed.NO_SERVICE)
        self._post(TurnWanted(job.id, urgent=urgent, demand=demand))

    def _withdraw(self, job: Job, kind: MemoryClass) -> None:
        assert job.seated is not None
        if self.granting.withdraw(job):
            self._post(MemoryReturned(job.id, kind, needed(job.seated.seat, kind)))
        else:
            self._post(RequestWithdrawn(job.id, kind))

    def close(self, job: JobId) -> None:
        self._attaching.unwatch(job)
        for line in self._lines.all(job):
            self._lines.close(line)

    def close_all(self) -> None:
        for job in self._lines.jobs():
            self.close(job)

    def send(self, job: JobId, packet: Packet, fds: list[int]) -> None:
        """To the attached process, as soon as it reads, in order.  When it is gone, its pidfd tells."""
        line = self._seats_line(job)
        if line is not None:
            self.answer(line, packet, fds)

    def answer(self, line: Line, packet: Packet, fds: list[int]) -> None:
        """To one process of a job, in the same way."""
        try:
            line.outbox.send(packet.encode(), fds)
        except OSError as error:
            log.warning("cannot send %s to job %d: %s", packet.type.name, line.job, error)

    def _add(self, job: Job, name: str, fd: int) -> Line:
        return self._lines.add(job.id, name, fd, lambda: self._emptied(job))

    def _listen(self, line: Line) -> None:
        asyncio.get_running_loop().add_reader(line.socket, self._readable, line)

    def _seats_line(self, number: JobId) -> Line | None:
        job = self._jobs.live.get(number)
        return None if job is None else self._lines.get(number, job.line)

    def _find_line(self, job: Job, pid: int) -> None:
        """After a restart: by which channel the attached process speaks."""
        job.line = next((line.name for line in self._lines.all(job.id) if line.pid == pid), INHERITED)

    def _forget(self, number: JobId) -> None:
        """A process is gone: what it has not been sent is nothing to the next one."""
        line = self._seats_line(number)
        if line is not None:
            line.outbox.clear()
            self._jobs.live[number].line = INHERITED

    def process_ended(self, job_id: JobId) -> None:
        """The job's main process is gone, and with it everything it held."""
        job = self._jobs.live.get(job_id)
        if job is None:
            return
        self.companions.last_word(job)
        if self._lines.all(job_id):
            self._attaching.detach(job)

    def _left(self) -> None:
        """A process has left its device."""
        self.granting.everywhere()
        self.weights.tidy()

    def _emptied(self, job: Job) -> None:
        """What had to wait has been sent."""
        if job.seated is not None:
            job.seated.board.ring(job.seated.seat)
        self.granting.again(job)

    def _quiet(self, job: Job) -> bool:
        """Whether it and its shim have been sent everything."""
        line = self._seats_line(job.id)
        return (line is None or line.outbox.empty) and self.shim_quiet(job.id)

    def _readable(self, line: Line) -> None:
        job = self._jobs.live.get(line.job)
        if job is None:
            self.close(line.job)
        elif not self._read_one(job, line):
            self._hung_up(job, line)

    def _hung_up(self, job: Job, line: Line) -> None:
        """Nobody holds the other end any more.  What becomes of the seat is for the pidfd to say."""
        asyncio.get_running_loop().remove_reader(line.socket)
        line.over = True
        self.companions.pending(line.job, line.name, None)
        if line.name != INHERITED and (job.seated is None or line.name != job.line):
            self._hang_up(line)

    def _hang_up(self, line: Line) -> None:
        self._lines.close(line)
        self._seating.drop(line.job, [line.name])

    def _settled(self, job: Job) -> None:
        """Whose the seat is has been decided: those that wait for it are answered."""
        for line in self._lines.all(job.id):
            if line.over and line.name not in (INHERITED, job.line):
                self._hang_up(line)
            elif line.waits:
                line.waits = False
                self._listen(line)

    def _drain(self, job: Job) -> None:
        line = self._lines.get(job.id, job.line)
        while line is not None and self._read_one(job, line, empty=False):
            pass

    def _read_one(self, job: Job, line: Line, *, empty: bool = True) -> bool:
        """Handle one packet.  ``empty``: what to answer when there is none; False at the end of the channel."""
        if line.over or line.waits:
            return False if line.over else empty
        try:
            # Until it has been seated a packet is only looked at: if we die before we answer a HELLO, our
            # successor finds it again.
            peek = socket.MSG_PEEK if job.seated is None or job.line != line.name else 0
            data = line.socket.recv(PACKET_BYTES + 1, socket.MSG_DONTWAIT | peek)
        except BlockingIOError:
            return empty
        except ConnectionResetError:
            return False  # it has ended without reading what we had sent
        except OSError as error:
            log.warning("a channel of job %d broke: %s", job.id, error)
            return False
        if data:
            self._packet(job, line, data)
        if peek and data and not line.waits:
            line.socket.recv(PACKET_BYTES + 1, socket.MSG_DONTWAIT)
        return bool(data)

    def _packet(self, job: Job, line: Line, data: bytes) -> None:
        try:
            packet = Packet.decode(data)
        except ValueError as error:
            log.warning("job %d sent something that is no packet: %s", job.id, error)
            return
        if packet.type is PacketType.HELLO:
            self._attaching.hello(job, line, packet)
            self.companions.pending(job.id, line.name, self._pending(job, line, packet))
            if line.waits:
                asyncio.get_running_loop().remove_reader(line.socket)
        elif job.seated is not None and line.name == job.line:
            self._seated_packet(job, packet)
        else:
            self.companions.packet(job, line, packet)

    def _pending(self, job: Job, line: Line, hello: Packet) -> int | None:
        """The process whose HELLO has been answered, if it is to ask again: it was not about to use the device."""
        seated = job.seated is not None and job.line == line.name
        return None if hello.b or seated or hello.a != PROTOCOL else line.pid or hello.pid

    def _seated_packet(self, job: Job, packet: Packet) -> None:
        assert job.seated is not None
        self.turns.sync(job.lane)
        match packet.type:
            case PacketType.WANT | PacketType.URGENT:
                self._wanted(job, packet)
            case PacketType.PAUSED:
                self.pauses.answered(job, packet.a)
            case PacketType.RELEASED | PacketType.PASSED:
                pass  # the sync has seen it in the seat
            case PacketType.GROW if packet.a < len(CLASSES):
                # After a restart it may have been answered from the seat, or a later one has been found there.
                if not is_answered(job.seated.seat, packet.c) and not is_before(packet.c, job.grow_seq):
                    job.grow_seq = packet.c & 0xFFFFFFFF  # the seat's word
                    self.ask(job, CLASSES[packet.a], packet.b, optional=bool(packet.d))
            case PacketType.WITHDRAWN if packet.a < len(CLASSES):
                # Another number: a later request has been found in the seat, after a restart, or it has been answered.
                if packet.c == job.grow_seq and not is_answered(job.seated.seat, packet.c):
                    self._withdraw(job, CLASSES[packet.a])
            case PacketType.SHRUNK if packet.a < len(CLASSES):
                self._post(MemoryReturned(job.id, CLASSES[packet.a], packet.b))
            case PacketType.LEFT:
                self._attaching.left(job)
            case PacketType.OFFLOADED if not job.seated.extents:
                self.offloads.answered(job, packet)
            case PacketType.CUT_DONE if job.seated.extents:
                self.supply.answered(job, packet)
                self.granting.everywhere()
            case _:
                log.warning("job %d sent an unexpected packet: %r", job.id, packet)
