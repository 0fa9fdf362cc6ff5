"""The job channels: packets of attached processes become events of the core."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass

from carpool.core.events import (
    Attached,
    Detached,
    Event,
    MemoryRequested,
    MemoryReturned,
    Offloaded,
    Sampled,
    TurnPassed,
    TurnReleased,
    TurnWanted,
)
from carpool.core.model import Cause, JobId, LaneId, MemoryClass
from carpool.daemon.boards import BoardError
from carpool.daemon.clock import monotonic_us
from carpool.daemon.jobs import Job, JobTable
from carpool.daemon.seating import Seating
from carpool.daemon.seats import cause_of, usage_of
from carpool.devices.base import DeviceError
from carpool.protocol.seat import PACKET_BYTES, PROTOCOL, Packet, PacketType
from carpool.protocol.session import Register

log = logging.getLogger(__name__)
CLASSES = (MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL)
ANOTHER_ATTACHED, OTHER_VERSION = 1, 2


@dataclass(slots=True)
class Channel:
    """The daemon's end of one job channel, and the pidfd of the attached process."""

    socket: socket.socket
    pidfd: int | None = None
    paused: bool = False


class Channels:
    def __init__(self, jobs: JobTable, seating: Seating, post: Callable[[Event], None]) -> None:
        self._jobs = jobs
        self._seating = seating
        self._post = post
        self._of: dict[JobId, Channel] = {}
        self.recovering = False  # while true nothing is read: the core does not know the jobs yet

    def open(self, job: Job, fds: list[int], message: Register) -> None:
        """A shim has registered: the channel's end first, then what it kept for an earlier daemon."""
        self.close(job.id)
        channel = self._of[job.id] = Channel(socket.socket(fileno=fds[0]))
        kept = dict(zip(message.kept, fds[1:], strict=False))
        if job.seated is not None or message.attached_pid is None:
            for fd in kept.values():
                os.close(fd)
        elif self._seating.adopt(job, kept, message.attached_pid) and not self.recovering:
            # Its shim came back after the core had been told that the job does not use its device.
            log.error("job %d came back too late to be adopted with its memory", job.id)
        if self.recovering:
            channel.paused = True
        else:
            self.resume(job.id)

    def resume(self, job: JobId) -> None:
        """Start reading; watch the attached process."""
        channel = self._of.get(job)
        if channel is None:
            return
        channel.paused = False
        asyncio.get_running_loop().add_reader(channel.socket, self._readable, job)
        live = self._jobs.live.get(job)
        if live is not None and live.seated is not None:
            self._watch(live, channel)

    def close(self, job: JobId) -> None:
        channel = self._of.pop(job, None)
        if channel is None:
            return
        self._unwatch(channel)
        asyncio.get_running_loop().remove_reader(channel.socket)
        channel.socket.close()

    def close_all(self) -> None:
        for job in tuple(self._of):
            self.close(job)

    def send(self, job: JobId, packet: Packet, fds: list[int]) -> None:
        channel = self._of.get(job)
        if channel is None:
            return
        try:
            socket.send_fds(channel.socket, [packet.encode()], fds, socket.MSG_DONTWAIT)
        except OSError as error:
            log.warning("cannot send %s to job %d: %s", packet.type.name, job, error)

    def process_ended(self, job_id: JobId) -> None:
        """The job's main process is gone, and with it everything it held."""
        job = self._jobs.live.get(job_id)
        if job is not None and job_id in self._of:
            self.detach(job)

    def detach(self, job: Job) -> None:
        """The attached process is gone.  What it said before it went counts; then its turn is found or freed."""
        channel = self._of[job.id]
        self._drain(job)
        self._unwatch(channel)
        if job.seated is None:
            return
        self._post_last_handover(job)
        job.usage = usage_of(job.seated.seat, monotonic_us())
        self._post(Sampled(job.id, job.usage))
        self._seating.unseat(job)
        self._post(Detached(job.id))

    def _post_last_handover(self, job: Job) -> None:
        """If it died in the middle of handing over, the one that it had named gets the turn from us."""
        if job.lane is None:
            return
        self.sync(job.lane)
        heir = self._jobs.live.get(self._seating.holder.get(job.lane, 0))
        if heir is None or heir is job or heir.seated is None:
            return
        seat = heir.seated.seat
        # In this order: a job that lets go clears `turn` first and wants another one only after it has counted.
        if seat.get("turn") == 0 and seat.get("want") and seat.get("passed_seq") == heir.passed_seq:
            seat.set("turn_start_us", monotonic_us())
            seat.set("turn", 1)
        heir.seated.board.wake(seat, "turn")  # or it may have died before it woke it
        heir.seated.board.ring(seat)

    # Packets

    def _readable(self, job_id: JobId) -> None:
        job = self._jobs.live.get(job_id)
        if job is None:
            self.close(job_id)
        elif not self._read_one(job):
            # Nobody holds the job's end any more.  What becomes of the seat is for the pidfd to say.
            asyncio.get_running_loop().remove_reader(self._of[job_id].socket)

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
            data = channel.socket.recv(PACKET_BYTES + 1, socket.MSG_DONTWAIT | peek)
        except BlockingIOError:
            return empty
        except OSError as error:
            log.warning("the channel of job %d broke: %s", job.id, error)
            return False
        if data:
            self._packet(job, data)
        if peek and data:
            channel.socket.recv(PACKET_BYTES + 1, socket.MSG_DONTWAIT)
        return bool(data)

    def _packet(self, job: Job, data: bytes) -> None:
        try:
            packet = Packet.decode(data)
        except ValueError as error:
            log.warning("job %d sent something that is no packet: %s", job.id, error)
            return
        if packet.type is PacketType.HELLO:
            self._hello(job, packet)
        elif job.seated is not None:
            self._seated_packet(job, packet)

    def _seated_packet(self, job: Job, packet: Packet) -> None:
        assert job.seated is not None
        if job.lane is not None:
            self.sync(job.lane)
        match packet.type:
            case PacketType.WANT | PacketType.URGENT:
                self._post(TurnWanted(job.id, urgent=packet.type is PacketType.URGENT))
            case PacketType.RELEASED | PacketType.PASSED:
                pass  # the sync has seen it in the seat
            case PacketType.GROW if packet.a < len(CLASSES):
                if packet.c != job.seated.seat.get("grow_ack"):  # else it was answered from the seat, after a restart
                    job.grow_seq = packet.c
                    self._post(MemoryRequested(job.id, CLASSES[packet.a], packet.b, optional=bool(packet.d)))
            case PacketType.SHRUNK if packet.a < len(CLASSES):
                self._post(MemoryReturned(job.id, CLASSES[packet.a], packet.b))
            case PacketType.OFFLOADED:
                job.seated.seat.set("offload", 0)
                self._post(Offloaded(job.id))
            case PacketType.BYE:
                pass  # the pidfd says when it is really gone
            case _:
                log.warning("job %d sent an unexpected packet: %r", job.id, packet)

    def sync(self, lane: LaneId) -> None:
        """Packets of different jobs may arrive in any order; the seats say whose turn has ended, and who has it now."""
        while (holder := self._jobs.live.get(self._seating.holder.get(lane, 0))) is not None:
            if holder.seated is None or holder.passed_seq == (seq := holder.seated.seat.get("passed_seq")):
                return
            holder.passed_seq = seq
            cause = cause_of(holder.seated.seat.get("cause"))
            slot = holder.seated.seat.get("passed_to")
            # A successor that died in the meantime cannot compute: the turn is free.
            to = self._seating.at(holder.seated.board, slot - 1) if slot else None
            self._passed(holder, to, cause) if to else self._released(holder, cause)

    def _released(self, job: Job, cause: Cause) -> None:
        self._end_of_turn(job)
        self._post(TurnReleased(job.id, cause, job.usage))

    def _passed(self, job: Job, to: Job, cause: Cause) -> None:
        self._end_of_turn(job)
        to.switches += 1
        if job.lane is not None:
            self._seating.holder[job.lane] = to.id
        self._post(TurnPassed(job.id, to.id, cause, job.usage))

    def _end_of_turn(self, job: Job) -> None:
        assert job.seated is not None and job.lane is not None
        job.usage = usage_of(job.seated.seat, monotonic_us())
        if self._seating.holder.get(job.lane) == job.id:
            del self._seating.holder[job.lane]

    # Attaching

    def _hello(self, job: Job, packet: Packet) -> None:
        if packet.a != PROTOCOL:
            log.warning("job %d speaks protocol %d of the seats, this daemon %d", job.id, packet.a, PROTOCOL)
            self.send(job.id, Packet(PacketType.REFUSED, a=OTHER_VERSION), [])
            return
        if job.seated is not None and packet.pid != job.seated.pid and self._attached_is_dead(job):
            self.detach(job)  # its pidfd would have told us in a moment
        if job.seated is not None:
            self._hello_again(job, packet)
            return
        try:
            fds = self._seating.seat(job, packet.pid)
        except (BoardError, DeviceError, AssertionError) as error:
            log.error("cannot seat job %d: %s", job.id, error)
            self.send(job.id, Packet(PacketType.REFUSED, a=ANOTHER_ATTACHED), [])
            return
        self.send(job.id, self._seating.setup_packet(job), fds)
        self._post(Attached(job.id))
        self._watch(job, self._of[job.id])

    def _hello_again(self, job: Job, packet: Packet) -> None:
        """Another process of the job; or the same one, whose answer an earlier daemon did not get round to."""
        seated = job.seated
        assert seated is not None and job.device is not None and job.lane is not None
        if packet.pid != seated.pid:
            self.send(job.id, Packet(PacketType.REFUSED, a=ANOTHER_ATTACHED), [])
        elif seated.seat.get("pid") == 0:
            device = self._seating.devices[job.device]
            fds = [seated.board.fd, device.lane_fd(job.lane), device.persistent_fd(job.id)]
            self.send(job.id, self._seating.setup_packet(job), fds)

    def _attached_is_dead(self, job: Job) -> bool:
        pidfd = self._of[job.id].pidfd
        return pidfd is not None and bool(select.select([pidfd], [], [], 0)[0])

    def _watch(self, job: Job, channel: Channel) -> None:
        assert job.seated is not None
        loop = asyncio.get_running_loop()
        try:
            channel.pidfd = os.pidfd_open(job.seated.pid)
        except (ProcessLookupError, ValueError, OSError):
            loop.call_soon(self._attached_gone, job.id)
            return
        loop.add_reader(channel.pidfd, self._attached_gone, job.id)

    def _unwatch(self, channel: Channel) -> None:
        if channel.pidfd is not None:
            asyncio.get_running_loop().remove_reader(channel.pidfd)
            os.close(channel.pidfd)
            channel.pidfd = None

    def _attached_gone(self, job_id: JobId) -> None:
        job = self._jobs.live.get(job_id)
        if job is not None and job_id in self._of:
            self.detach(job)
