"""Attaching processes to their seats, and detaching them.

A seat follows its use: a process that has never used its seat gives it up to another process of its job that does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from carpool.core.events import Attached, Detached, Sampled
from carpool.core.model import JobId, Memory
from carpool.daemon.channels.connections import JobConnections, Line
from carpool.daemon.channels.secondary import SecondaryProcesses
from carpool.daemon.jobs.constraints import SEVERAL, why_exclusive
from carpool.daemon.jobs.seat_table import BoardError
from carpool.daemon.jobs.table import JobRecord, Seated
from carpool.daemon.memory.grants import GrantSender
from carpool.daemon.seats.allocator import whole_of_further
from carpool.daemon.seats.record import tell_constraints, usage_of
from carpool.daemon.seats.turns import SeatParts
from carpool.daemon.system.clock import monotonic_us
from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.pidwatch import PidWatch
from carpool.devices.base import DeviceError
from carpool.protocol.seat import PROTOCOL, Kind, Leave, Packet, PacketType, SeatWords

log = logging.getLogger(__name__)
ANOTHER_ATTACHED, OTHER_VERSION = 1, 2
#: Attempts to seat a process for which descriptors or memory are lacking, and the time between them.
MOST_VAIN, AGAIN_S = 20, 0.5


class ChannelReader(Protocol):
    """The reader of the channels (`carpool.daemon.channels.router`)."""

    def drain(self, job: JobRecord) -> None:
        """Handle the packets of the job's attached process that have not been read yet."""
        ...

    def settled(self, job: JobRecord) -> None:
        """Let the processes that wait for the job's seat go on: which process has the seat has been decided."""
        ...


class Attaching:
    """Attaches processes to seats.  ``used`` is called with each job whose process has got its seat."""

    def __init__(
        self,
        seats: SeatParts,
        lines: JobConnections,
        granting: GrantSender,
        secondary: SecondaryProcesses,
        reader: ChannelReader,
        used: Callable[[JobRecord], None],
    ) -> None:
        self._jobs = seats.jobs
        self._lines = lines
        self._seating = seats.seating
        self._turns = seats.turns
        self._granting = granting
        self._secondary = secondary
        self._reader = reader
        self._used = used
        self._post = seats.post
        self._watches: dict[JobId, PidWatch] = {}
        self._answered = set[JobId]()  # this daemon has sent the attached process its seat and memory
        self._vain: dict[JobId, int] = {}  # attempts to seat a process

    def hello(self, job: JobRecord, line: Line, packet: Packet) -> None:
        """Answer the HELLO of a process that wants a seat, and waits.  ``line.waits``: there is no answer yet."""
        pid = line.pid or packet.pid
        if packet.a != PROTOCOL:
            text = "job %d speaks protocol %d of the seats, this daemon %d"
            log.warning(text, job.id, packet.a, PROTOCOL, extra=caused_by(job.owner))
            self._refuse(job, line, OTHER_VERSION)
            return
        if job.seated is not None and self._has_gone(job, line, pid):
            self.detach(job)  # the watch would have reported it in a moment
        if job.seated is None:
            self._seat(job, line, pid)
        elif pid == job.seated.pid:
            self._hello_again(job, line)
        else:
            self._hello_of_another(job, line, pid, uses_device=bool(packet.b))

    def _hello_of_another(self, job: JobRecord, line: Line, pid: int, *, uses_device: bool) -> None:
        """Answer a process of a job whose seat another process has."""
        seated, by_another_line = job.attached, line.name != job.line
        if uses_device and by_another_line and seated.extents:
            self._further(job, line, pid)
        elif uses_device and by_another_line and may_leave(seated):
            line.waits = True
            request_detach(seated)
        else:
            if uses_device and not seated.extents:
                job.refused_pid = pid  # the process goes on without Carpool
            self._refuse(job, line, ANOTHER_ATTACHED)

    def left(self, job: JobRecord) -> None:
        """Handle the answer of the attached process that was asked for its seat."""
        if job.seated is not None and job.seated.seat.get("leave") == Leave.LEFT:
            self.detach(job)
        else:
            self._reader.settled(job)

    def watch(self, job: JobRecord) -> None:
        """Watch for the end of the attached process."""
        self.unwatch(job.id)
        if job.seated is not None:
            process = job.process
            fd = process.duplicate() if process is not None and process.pid == job.seated.pid else None
            self._watches[job.id] = PidWatch(job.seated.pid, lambda: self._gone(job.id), fd)

    def holder(self, job: JobRecord) -> int | None:
        """Return the attached process, if it lives and holds the turn."""
        watch = self._watches.get(job.id)
        if job.seated is None or watch is None or watch.over or not job.seated.seat.get("turn"):
            return None
        return job.seated.pid

    def unwatch(self, job: JobId) -> None:
        """Stop watching the attached process."""
        watch = self._watches.pop(job, None)
        if watch is not None:
            watch.stop()

    def detach(self, job: JobRecord) -> None:
        """Detach the attached process, which is gone: handle what it said before, then find or free its turn."""
        leaving = job.seated
        self._reader.drain(job)
        if job.seated is not leaving:
            return  # its last packet was a successor's HELLO: the successor has the seat, and all is settled
        if job.seated is None:
            self.unwatch(job.id)
            return
        self._turns.sync(job.lane)
        job.usage = usage_of(job, monotonic_us())
        self._post(Sampled(job.id, job.usage))
        self.take_back(job)
        self._tell_detached(job)
        self._reader.settled(job)

    def take_back(self, job: JobRecord) -> None:
        """Take back everything that the job's attached process had.

        The process may have died, given its seat up or become secondary, or the job has ended or begins anew.  The turn
        goes to the successor that the process had named, or is free; the seat rests; bank, store and descriptors go
        back, and packets that were not sent yet are dropped.  Nothing happens if the job has no seat.
        """
        self.unwatch(job.id)
        self._answered.discard(job.id)
        if job.seated is not None:
            self._turns.take_back(job)
            self._seating.unseat(job)
            self._lines.leave_seat(job)

    def _seat(self, job: JobRecord, line: Line, pid: int) -> None:
        if job.lane is None and job.process is not None:
            line.waits = True  # it has joined, and is answered when it has been placed
            return
        try:
            if job.lane is None:
                raise BoardError("it belongs to no lane yet")
            memory = self._seating.seat(job, pid)
        except (BoardError, DeviceError, OSError) as error:
            log.error("cannot seat job %d: %s", job.id, error, extra=caused_by(job.owner))
            with suppress(DeviceError, OSError):
                self._seating.unseat(job)  # what it had been given before that
            self._not_yet(job, line)
            return
        self._vain.pop(job.id, None)
        job.line = line.name
        self._answered.add(job.id)
        self._lines.answer(line, self._seating.setup_packet(job), memory)
        self._granting.memory(job, answers=False)
        self._post(Attached(job.id))
        tell_constraints(job, self._post)  # of its other processes
        self.watch(job)
        self._used(job)

    def _not_yet(self, job: JobRecord, line: Line) -> None:
        """Try again in a moment: a process that is refused a seat would use the device beside Carpool."""
        self._vain[job.id] = self._vain.get(job.id, 0) + 1
        if self._vain[job.id] < MOST_VAIN:
            line.waits = True
            asyncio.get_running_loop().call_later(AGAIN_S, self._again, job.id)
        else:
            self._refuse(job, line, ANOTHER_ATTACHED)

    def _again(self, job_id: JobId) -> None:
        job = self._jobs.live.get(job_id)
        if job is not None:
            self._reader.settled(job)

    def _further(self, job: JobRecord, line: Line, pid: int) -> None:
        """Seat a further process on a CUDA device as secondary, or instead of a process that never used the seat."""
        try:
            if never_used(job.attached.seat.snapshot()) and not any(pieces.sizes for pieces in job.pieces.values()):
                self._make_secondary(job)
                self._seat(job, line, pid)
            else:
                self._secondary.seat(job, line, pid)
        except (BoardError, DeviceError) as error:
            log.error("cannot seat another process of job %d: %s", job.id, error, extra=caused_by(job.owner))
            self._refuse(job, line, ANOTHER_ATTACHED)

    def _make_secondary(self, job: JobRecord) -> None:
        """Make the attached process secondary: its gate is shut, and it allocates from the driver from now on."""
        seated, line = job.seated, job.line
        assert seated is not None
        for word in ("p_limit", "e_limit"):
            seated.seat.set(word, 0)
        seated.seat.set("whole", whole_of_further(job))
        self.take_back(job)
        seated.board.adopt(seated.seat.slot)
        self._tell_detached(job)
        self._secondary.convert(job, line, seated)

    def _tell_detached(self, job: JobRecord) -> None:
        """Tell the core that no process is attached; the job's other processes go on."""
        job.granted = Memory()  # the core will say so, too
        self._post(Detached(job.id, why_exclusive(SEVERAL if job.has_secondary else 0, job.ungated_pid)))
        tell_constraints(job, self._post)

    def _hello_again(self, job: JobRecord, line: Line) -> None:
        """Answer, once, an attached process that an earlier daemon has not answered.

        Whether this daemon has answered is kept in the daemon's memory: the process can write to the seat, too.
        """
        if job.id in self._answered or job.attached.seat.get("pid") != 0:
            return
        self._answered.add(job.id)
        try:
            memory = self._seating.setup_memory(job)
        except (BoardError, DeviceError) as error:
            log.error("job %d is not answered again: %s", job.id, error, extra=caused_by(job.owner))
            self._refuse(job, line, ANOTHER_ATTACHED)
            return
        self._lines.answer(line, self._seating.setup_packet(job), memory)
        job.adopted_unreported = False  # it has nothing yet
        self._granting.memory(job, answers=False)

    def _refuse(self, job: JobRecord, line: Line, why: int) -> None:
        kind = Kind.HOST if job.device is None else self._seating.layouts[job.device].kind
        self._lines.answer(line, Packet(PacketType.REFUSED, a=why, b=kind))

    def _has_gone(self, job: JobRecord, line: Line, pid: int) -> bool:
        """Whether the attached process has ended, left, or become another program."""
        if pid == job.attached.pid:
            return line.name != job.line or job.attached.seat.get("leave") == Leave.LEFT
        watch = self._watches.get(job.id)
        return job.attached.seat.get("leave") == Leave.LEFT or (watch is not None and watch.over)

    def _gone(self, job_id: JobId) -> None:
        job = self._jobs.live.get(job_id)
        if job is not None:
            self.detach(job)


def may_leave(seated: Seated) -> bool:
    """Whether the process may give up its seat, as far as the seat says; the process itself knows, and is asked."""
    words = seated.seat.snapshot()
    return words.leave != Leave.STAYS and never_used(words)


def never_used(words: SeatWords) -> bool:
    """Whether the process never had memory or a turn, and asked for neither: any use of the device leaves a sign."""
    signs = words.turn, words.turns, words.want, words.grow_seq, words.p_peak, words.e_peak, words.traps, words.fixed
    return not any(signs)


def request_detach(seated: Seated) -> None:
    """Ask a process for its seat; it answers in the seat, and by a packet.  Asking again does no harm."""
    if seated.seat.get("leave") == Leave.NO:
        seated.seat.set("leave", Leave.ASKED)
    seated.notify()
