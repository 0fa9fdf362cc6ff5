"""The job channels: packets of attached processes become events of the core."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from functools import partial

from carpool.core.events import Event, MemoryRequested, MemoryReturned, TurnWanted
from carpool.core.model import JobId, MemoryClass
from carpool.daemon.adopting import Adopting
from carpool.daemon.attaching import Attaching
from carpool.daemon.banking import Banking
from carpool.daemon.copies import Copies
from carpool.daemon.granting import Granting
from carpool.daemon.jobs import Job, JobTable
from carpool.daemon.offloads import Offloads
from carpool.daemon.outbox import Outbox
from carpool.daemon.returning import Returning
from carpool.daemon.seating import Seating
from carpool.daemon.supply import Supply
from carpool.daemon.turns import Turns
from carpool.devices.base import in_extents
from carpool.protocol.seat import PACKET_BYTES, Packet, PacketType
from carpool.protocol.session import Register

log = logging.getLogger(__name__)
CLASSES = (MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL)


class Channels:
    """The daemon's ends of the job channels."""

    def __init__(self, jobs: JobTable, seating: Seating, post: Callable[[Event], None]) -> None:
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
        self.offloads.again = returning.again = self.granting.again
        for device in seating.devices.values():
            if in_extents(device):
                device.on_bank_cut = partial(self.supply.bank_was_cut, device.id)
        self.copies.freed = seating.freed = self.granting.everywhere
        self._attaching = Attaching(jobs, seating, self.turns, post)
        self._attaching.send, self._attaching.drain = self.send, self._drain
        self._attaching.forget = self._forget
        self._attaching.granted = lambda job: self.granting.memory(job, answers=False)
        self._of: dict[JobId, socket.socket] = {}
        self._outboxes: dict[JobId, Outbox] = {}
        self.shim_quiet: Callable[[JobId], bool] = lambda job: True
        self.recovering = False  # while true nothing is read: the core does not know the jobs yet

    def open(self, job: Job, fds: list[int], message: Register) -> bool:
        """A shim has registered: the channel's end first, then what it kept for an earlier daemon.

        False if it has come back with memory in use after the core had been told that the job uses none, or with
        memory that only a daemon of another version knows.
        """
        self.close(job.id)
        channel = self._of[job.id] = socket.socket(fileno=fds[0])
        self._outboxes[job.id] = Outbox(channel, lambda: self._emptied(job))
        kept = dict(zip(message.kept, fds[1:], strict=False))
        in_time = True
        if job.seated is not None or message.attached_pid is None:
            for fd in kept.values():
                os.close(fd)
        elif self.recovering:
            in_time = self.adopting.adopt(job, kept, message.attached_pid)
        else:
            for fd in kept.values():
                os.close(fd)
            in_time = False
        if not self.recovering:
            self.resume(job)
        return in_time

    def resume(self, job: Job) -> None:
        """Start reading; watch the attached process."""
        if job.id in self._of:
            asyncio.get_running_loop().add_reader(self._of[job.id], self._readable, job.id)
            self._attaching.watch(job)

    def close(self, job: JobId) -> None:
        self._attaching.unwatch(job)
        channel = self._of.pop(job, None)
        if channel is not None:
            asyncio.get_running_loop().remove_reader(channel)
            self._outboxes.pop(job).clear()
            channel.close()

    def close_all(self) -> None:
        for job in tuple(self._of):
            self.close(job)

    def send(self, job: JobId, packet: Packet, fds: list[int]) -> None:
        """As soon as the job reads, in order.  When the job is gone, its pidfd tells."""
        if job not in self._of:
            return
        try:
            self._outboxes[job].send(packet.encode(), fds)
        except OSError as error:
            log.warning("cannot send %s to job %d: %s", packet.type.name, job, error)

    def _forget(self, job: JobId) -> None:
        """A process is gone: what it has not been sent is nothing to the next one."""
        if job in self._outboxes:
            self._outboxes[job].clear()

    def process_ended(self, job_id: JobId) -> None:
        """The job's main process is gone, and with it everything it held."""
        job = self._jobs.live.get(job_id)
        if job is not None and job_id in self._of:
            self._attaching.detach(job)

    def _emptied(self, job: Job) -> None:
        """What had to wait has been sent."""
        if job.seated is not None:
            job.seated.board.ring(job.seated.seat)
        self.granting.again(job)

    def _quiet(self, job: Job) -> bool:
        """Whether it and its shim have been sent everything."""
        return self._outboxes[job.id].empty and self.shim_quiet(job.id)

    def _readable(self, job_id: JobId) -> None:
        job = self._jobs.live.get(job_id)
        if job is None:
            self.close(job_id)
        elif not self._read_one(job):
            # Nobody holds the job's end any more.  What becomes of the seat is for the pidfd to say.
            asyncio.get_running_loop().remove_reader(self._of[job_id])

    def _drain(self, job: Job) -> None:
        while self._read_one(job, empty=False):
            pass

    def _read_one(self, job: Job, *, empty: bool = True) -> bool:
        """Handle one packet.  ``empty``: what to answer when there is none; False at the end of the channel."""
        channel = self._of.get(job.id)
        if channel is None:
            return False
        try:
            # Until it has been seated a packet is only looked at: if we die before we answer a HELLO, our
            # successor finds it again.
            peek = socket.MSG_PEEK if job.seated is None else 0
            data = channel.recv(PACKET_BYTES + 1, socket.MSG_DONTWAIT | peek)
        except BlockingIOError:
            return empty
        except OSError as error:
            log.warning("the channel of job %d broke: %s", job.id, error)
            return False
        if data:
            self._packet(job, data)
        if peek and data:
            channel.recv(PACKET_BYTES + 1, socket.MSG_DONTWAIT)
        return bool(data)

    def _packet(self, job: Job, data: bytes) -> None:
        try:
            packet = Packet.decode(data)
        except ValueError as error:
            log.warning("job %d sent something that is no packet: %s", job.id, error)
            return
        if packet.type is PacketType.HELLO:
            self._attaching.hello(job, packet)
        elif job.seated is not None:
            self._seated_packet(job, packet)

    def _seated_packet(self, job: Job, packet: Packet) -> None:
        assert job.seated is not None
        self.turns.sync(job.lane)
        match packet.type:
            case PacketType.WANT | PacketType.URGENT:
                self._post(TurnWanted(job.id, urgent=packet.type is PacketType.URGENT))
            case PacketType.RELEASED | PacketType.PASSED:
                pass  # the sync has seen it in the seat
            case PacketType.GROW if packet.a < len(CLASSES):
                if packet.c != job.seated.seat.get("grow_ack"):  # else it was answered from the seat, after a restart
                    job.grow_seq = packet.c & 0xFFFFFFFF  # the seat's word
                    self._post(MemoryRequested(job.id, CLASSES[packet.a], packet.b, optional=bool(packet.d)))
            case PacketType.SHRUNK if packet.a < len(CLASSES):
                self._post(MemoryReturned(job.id, CLASSES[packet.a], packet.b))
            case PacketType.OFFLOADED if not job.seated.extents:
                self.offloads.answered(job, packet)
            case PacketType.CUT_DONE if job.seated.extents:
                self.supply.answered(job, packet)
                self.granting.everywhere()
            case _:
                log.warning("job %d sent an unexpected packet: %r", job.id, packet)
