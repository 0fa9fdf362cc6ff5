"""The job channels: opening them, reading them, and handing on what is read."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from carpool.core.model import JobId
from carpool.daemon.channels.attach import Attaching
from carpool.daemon.channels.connections import INHERITED, PREFIX, JobConnections, Line
from carpool.daemon.channels.seat_packets import SeatPackets
from carpool.daemon.channels.secondary import SecondaryProcesses
from carpool.daemon.jobs.seat_table import BoardError
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.jobs.watchlist import Recovery
from carpool.daemon.memory.parts import MemoryParts
from carpool.daemon.seats.adoption import Adopting
from carpool.daemon.seats.kept_fds import BOARD, COMPANION, by_name, weights_in
from carpool.daemon.seats.services import TurnPauses
from carpool.daemon.seats.turns import SeatParts
from carpool.daemon.system.errors import may_pass
from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.processes import has_not_ended
from carpool.protocol.seat import PACKET_BYTES, PROTOCOL, SEATS, Packet, PacketType
from carpool.protocol.session import Register

log = logging.getLogger(__name__)
#: Most packets that are read of a process that has gone.  A channel holds fewer: a forked process has sent the rest.
MOST_UNREAD = 1024


class PacketRouter:
    """The daemon's ends of the job channels: opens and reads them, and hands on what is read."""

    def __init__(
        self,
        seats: SeatParts,
        lines: JobConnections,
        pauses: TurnPauses,
        memory: MemoryParts,
        secondary: SecondaryProcesses,
        recovery: Recovery,
        used: Callable[[JobRecord], None],
    ) -> None:
        """``used`` is called with each job whose process has got its seat."""
        self._jobs = seats.jobs
        self._lines = lines
        self._seating = seats.seating
        self._granting = memory.granting
        self._adopting = Adopting(seats.seating)
        self._found_weights = memory.found_weights
        self._secondary = secondary
        self._recovery = recovery
        self.attaching = Attaching(seats, lines, memory.granting, secondary, reader=self, used=used)
        self.packets = SeatPackets(seats.turns, pauses, memory, self.attaching, seats.post)

    def open(self, job: JobRecord, fds: list[int], message: Register) -> str:
        """Open the channels of a shim that has registered.

        ``fds``: the channel's end first, then what the shim kept for an earlier daemon.  Returns why the job cannot go
        on, or an empty text.  The shim may have come back with memory in use after the core had been told that the job
        uses none, with memory that only a daemon of another version knows, or with something that no shim keeps.
        Raises OSError if resources are lacking to take the job over now; the shim may come again.
        """
        self.close(job.id)
        kept = by_name(message.kept, fds[1:])
        try:
            self._open_lines(job, fds[0], kept, message.child_pid)
        except (BoardError, OSError, ValueError) as error:
            log.warning("job %d reconnects with other descriptors: %s", job.id, error, extra=caused_by(job.owner))
            _close(kept)
            return f"its shim has returned other descriptors than it was given: {error}"
        why = self._take_over(job, kept, message.attached_pid)
        if not self._recovery.active:
            self.resume(job)
        return why

    def _open_lines(self, job: JobRecord, inherited: int, kept: dict[str, int], main_pid: int | None) -> None:
        """Open the channels; adopt, and take out of ``kept``, what processes beside the attached one have.

        Raises BoardError, OSError, ValueError.
        """
        self._add(job, INHERITED, inherited)
        for name in [name for name in kept if name.startswith(PREFIX)]:
            self._add(job, name, kept.pop(name))
        if self._recovery.active:
            self._seating.ledger.believed(job.id, kept)
        for name in weights_in(kept):
            self._weights(job, name, kept)
        for name in [name for name in kept if name.startswith(f"{COMPANION}:")]:
            self._adopt_secondary(job, name, kept, main_pid)

    def _take_over(self, job: JobRecord, kept: dict[str, int], attached_pid: int | None) -> str:
        """Adopt the attached process, unless there is none, or this daemon knows it; return why that is impossible."""
        if self._recovery.active and job.seated is None and attached_pid is not None:
            if _was_taken_back(kept, attached_pid):
                _close(kept)
                return ""
            why = self._adopting.adopt(job, kept, attached_pid)
            self._find_line(job, attached_pid)
            return why
        _close(kept)
        known = job.seated is not None or attached_pid is None
        return "" if known else "its shim reconnected too late, with memory in use"

    def _weights(self, job: JobRecord, name: str, kept: dict[str, int]) -> None:
        """Adopt weights, unless this daemon knows them: a shim may only have come back.  Raises OSError, ValueError."""
        if self._recovery.active:
            self._found_weights.adopt(job, name, kept[name])
            del kept[name]
        else:
            os.close(kept.pop(name))

    def _adopt_secondary(self, job: JobRecord, name: str, kept: dict[str, int], main_pid: int | None) -> None:
        """Adopt a secondary process, unless this daemon knows it: a shim may only have come back.

        Raises BoardError, OSError, ValueError.
        """
        _, device, slot, pid = name.split(":")
        line = next((line for line in self._lines.all(job.id) if line.pid == int(pid)), None)
        if line is None and int(pid) == main_pid:
            line = self._lines.get(job.id, INHERITED)
        if line is None or not self._recovery.active:
            os.close(kept.pop(name))
        elif device not in self._seating.devices or not 0 <= int(slot) < SEATS:
            raise ValueError(f"there is no seat {name}")
        else:
            self._secondary.adopt(job, line, name, self._adopting.board(device, job.owner, kept, name))

    def bring(self, job: JobRecord, name: str, fd: int) -> None:
        """Open the channel of another process of the job, which has come through the attach socket."""
        try:
            line = self._add(job, name, fd)
        except (OSError, ValueError) as error:
            log.warning("a channel that job %d brings is closed: %s", job.id, error, extra=caused_by(job.owner))
            return
        if not self._recovery.active:
            self._listen(line)

    def resume(self, job: JobRecord) -> None:
        """Start reading; watch the attached process."""
        lines = self._lines.all(job.id)
        for line in lines:
            self._listen(line)
        if lines:
            self.attaching.watch(job)
            self._secondary.resume(job, [line for line in lines if line.name not in (INHERITED, job.line)])

    def release(self, job: JobRecord) -> None:
        """Take back what all processes of a job had, and stop listening to them: it has ended, or begins anew."""
        self.attaching.take_back(job)
        self._secondary.forget(job)
        self._seating.ledger.forget(job.id)
        self.close(job.id)

    def close(self, job: JobId) -> None:
        """Close all channels of a job, and stop watching its processes."""
        self.attaching.unwatch(job)
        for line in self._lines.all(job):
            self._lines.close(line)

    def close_all(self) -> None:
        """Close all channels at the daemon's end; jobs and shims keep their ends."""
        for job in self._lines.jobs():
            self.close(job)

    def _add(self, job: JobRecord, name: str, fd: int) -> Line:
        return self._lines.add(job, name, fd, lambda: self._emptied(job))

    def _listen(self, line: Line) -> None:
        asyncio.get_running_loop().add_reader(line.socket, self._readable, line)

    def _find_line(self, job: JobRecord, pid: int) -> None:
        """Find the channel of the attached process after a restart."""
        job.line = next((line.name for line in self._lines.all(job.id) if line.pid == pid), INHERITED)

    def process_ended(self, job_id: JobId) -> None:
        """Detach the job's main process, which is gone with everything that it held."""
        job = self._jobs.live.get(job_id)
        if job is None:
            return
        self._secondary.last_word(job)
        if self._lines.all(job_id):
            self.attaching.detach(job)

    def _emptied(self, job: JobRecord) -> None:
        """Go on after everything that had to wait has been sent: notify the process, and look at its request again."""
        if job.seated is not None:
            job.seated.notify()
        self._granting.again(job)

    def _readable(self, line: Line) -> None:
        job = self._jobs.live.get(line.job)
        if job is None:
            self.close(line.job)
        elif (line.allowance.spend() or not self._rests(job, line)) and not self._read_one(job, line):
            self._hung_up(job, line)

    def _rests(self, job: JobRecord, line: Line) -> bool:
        """Whether the user is over the rate; if so, nothing is read from this channel for a moment."""
        pause_s = line.allowance.pause_s()
        if not pause_s:
            return False
        loop = asyncio.get_running_loop()
        loop.remove_reader(line.socket)
        if line.rest is None:
            line.rest = loop.call_later(pause_s, self._rested, line)
        if line.allowance.newly_over():
            text = "job %d (uid %d) sends faster than packets_per_s allows: its channels are read more slowly"
            log.warning(text, job.id, job.owner, extra=caused_by(job.owner))
        return True

    def _rested(self, line: Line) -> None:
        line.rest = None
        if not (line.waits or line.over):
            self._listen(line)

    def _hung_up(self, job: JobRecord, line: Line) -> None:
        """Stop reading a channel whose other end is closed; what becomes of the seat depends on the pidfd."""
        asyncio.get_running_loop().remove_reader(line.socket)
        line.over = True
        self._secondary.pending(line.job, line.name, None)
        if line.name != INHERITED and (job.seated is None or line.name != job.line):
            self._hang_up(line)

    def _hang_up(self, line: Line) -> None:
        self._lines.close(line)
        self._seating.shims.drop(line.job, [line.name])

    def settled(self, job: JobRecord) -> None:
        """Let the processes that wait for the job's seat go on: which process has the seat has been decided."""
        for line in self._lines.all(job.id):
            if line.over and line.name not in (INHERITED, job.line):
                self._hang_up(line)
            elif line.waits:
                line.waits = False
                self._listen(line)

    def drain(self, job: JobRecord) -> None:
        """Handle the packets of the job's attached process that have not been read yet."""
        line, unread = self._lines.get(job.id, job.line), MOST_UNREAD
        while line is not None and unread and self._read_one(job, line, empty=False):
            unread -= 1

    def _read_one(self, job: JobRecord, line: Line, *, empty: bool = True) -> bool:
        """Handle one packet; False at the end of the channel.  ``empty``: what to return when there is no packet."""
        if line.over or line.waits:
            return empty and not line.over
        # Until the process is seated, a packet is only peeked at: if this daemon dies before it answers a HELLO, the
        # next daemon finds the packet again.
        peek = 0 if _has_seat(job, line) else socket.MSG_PEEK
        try:
            data = line.socket.recv(PACKET_BYTES + 1, socket.MSG_DONTWAIT | peek)
        except BlockingIOError:
            return empty
        except ConnectionResetError:
            return False  # the process has ended without reading what was sent
        except OSError as error:
            log.warning("a channel of job %d cannot be read: %s", job.id, error, extra=caused_by(job.owner))
            return may_pass(error) and empty
        return bool(data) and self._handled(job, line, data, peeked=bool(peek))

    def _handled(self, job: JobRecord, line: Line, data: bytes, *, peeked: bool) -> bool:
        """Handle a packet; False if it was only peeked at, and cannot be taken."""
        self._packet(job, line, data)
        return not peeked or line.waits or _taken(line)

    def _packet(self, job: JobRecord, line: Line, data: bytes) -> None:
        try:
            packet = Packet.decode(data)
        except ValueError as error:
            log.warning("job %d sent something that is not a packet: %s", job.id, error, extra=caused_by(job.owner))
            return
        if packet.type is PacketType.HELLO:
            self.attaching.hello(job, line, packet)
            self._secondary.pending(job.id, line.name, self._pending(job, line, packet))
            if line.waits:
                asyncio.get_running_loop().remove_reader(line.socket)
        elif _has_seat(job, line):
            self.packets.handle(job, job.attached, packet)
        else:
            self._secondary.packet(job, line, packet)

    def _pending(self, job: JobRecord, line: Line, hello: Packet) -> int | None:
        """Return the process whose HELLO was answered so that it asks again when it first uses the device, or None."""
        return None if hello.b or _has_seat(job, line) or hello.a != PROTOCOL else line.pid or hello.pid


def _has_seat(job: JobRecord, line: Line) -> bool:
    """Return whether the process at the other end is the one that has the job's seat."""
    return job.seated is not None and job.line == line.name


def _taken(line: Line) -> bool:
    """Take a packet that was only peeked at from the channel; False: the other end is gone, our answer unread."""
    for _ in range(2):  # the kernel may have no memory for a moment
        try:
            line.socket.recv(PACKET_BYTES + 1, socket.MSG_DONTWAIT)
        except ConnectionResetError:
            return False
        except OSError as error:
            log.warning("a channel of job %d cannot be read: %s", line.job, error, extra=caused_by(line.owner))
        else:
            return True
    return False


def _was_taken_back(kept: dict[str, int], attached_pid: int) -> bool:
    """Return whether the process has ended, and an earlier daemon died before the shim heard that its seat is free."""
    return not any(name.startswith(f"{BOARD}:") for name in kept) and not has_not_ended(attached_pid)


def _close(kept: dict[str, int]) -> None:
    for fd in kept.values():
        os.close(fd)
