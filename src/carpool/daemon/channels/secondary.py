"""Secondary processes: those of a job on a CUDA device beside the one that has the job's seat.

The processes of a job communicate as often as not, and what one of them holds back may be what another waits for.  So a
job has its device to itself while it has secondary processes.  A secondary process has a seat of its own, memory from
the driver itself (`carpool.daemon.memory.driver_memory`), and a gate that opens once, as soon as no other job of the
device holds a turn, and stays open.  Shims keep its seat table under a name that begins with "companion".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from carpool.core.model import DeviceId, JobId
from carpool.daemon.channels.connections import JobConnections, Line
from carpool.daemon.jobs.seat_table import Board
from carpool.daemon.jobs.table import JobRecord, Seated
from carpool.daemon.memory.driver_memory import DriverMemory
from carpool.daemon.seats.allocator import whole_of_further
from carpool.daemon.seats.kept_fds import COMPANION
from carpool.daemon.seats.record import answer_growth, grant_turn, is_answered, is_before, set_grace, tell_constraints
from carpool.daemon.seats.turns import SeatParts
from carpool.daemon.system.pidwatch import PidWatch
from carpool.protocol.seat import Grow, Packet, PacketType, Seat

log = logging.getLogger(__name__)
LOOK_S = 0.05
SHARE = 2  # the class of requests for memory from the driver


@dataclass(eq=False, slots=True)
class SecondaryProcess:
    """A secondary process, in its seat."""

    line: str  # the name of its channel
    board: Board
    seat: Seat
    pid: int
    kept: str  # name under which the shim keeps the board for it
    limit: int = 0  # bytes that it may have from the driver
    watch: PidWatch | None = None


class DeviceUse(Protocol):
    """The use of a device by jobs that have no seats there."""

    def present(self, device: DeviceId) -> tuple[int, frozenset[JobId]] | None:
        """Return checkpoint jobs on the device (`carpool.daemon.checkpoint.jobs`); None while one comes or leaves."""
        ...


class SecondaryProcesses:
    """The secondary processes of all jobs."""

    def __init__(
        self, seats: SeatParts, lines: JobConnections, memory: DriverMemory, checkpoint_jobs: DeviceUse
    ) -> None:
        self._jobs = seats.jobs
        self._lines = lines
        self._seating = seats.seating
        self._turns = seats.turns
        self._memory = memory
        self._checkpoint_jobs = checkpoint_jobs
        self._view = seats.view
        self._freed = seats.freed
        self._post = seats.post
        self._of: dict[JobId, list[SecondaryProcess]] = {}
        self._timers: dict[JobId, asyncio.TimerHandle] = {}
        self._pending: dict[JobId, dict[str, int]] = {}  # processes without a seat, by their channels

    # Processes come

    def seat(self, job: JobRecord, line: Line, pid: int) -> None:
        """Give a process a seat, and its job the device to itself.  Raises BoardError."""
        assert job.device is not None and job.lane is not None
        if any(process.line == line.name for process in self._of.get(job.id, ())):
            return  # its answer is on the way
        board = self._seating.board(job.device, job.owner)
        seat = board.take()
        set_grace(seat, self._seating.grace_us)
        seat.set("lane", job.lane)
        seat.set("whole", whole_of_further(job))
        self._add(job, SecondaryProcess(line.name, board, seat, pid, f"{COMPANION}:{job.device}:{seat.slot}:{pid}"))
        device = self._seating.devices[job.device]
        numbers = (seat.slot, device.window, job.lane, device.capacity, 0)
        self._lines.answer(line, Packet(PacketType.SETUP, 0, *numbers), [board.held])
        self._several(job)

    def convert(self, job: JobRecord, line: str, seated: Seated) -> None:
        """Make the attached process, which never used the job's seat, secondary; it keeps its place on the board."""
        name = f"{COMPANION}:{job.device}:{seated.seat.slot}:{seated.pid}"
        self._add(job, SecondaryProcess(line, seated.board, seated.seat, seated.pid, name))
        self._look(job)

    def adopt(self, job: JobRecord, line: Line, name: str, board: Board) -> None:
        """Adopt a secondary process that an earlier daemon has seated."""
        _, _, slot, pid = name.split(":")
        process = SecondaryProcess(line.name, board, board.adopt(int(slot)), int(pid), name)
        self._of.setdefault(job.id, []).append(process)
        self._memory.adopt(job, process)
        words = process.seat.snapshot()
        job.has_secondary |= any((words.turns, words.want, words.fixed, words.p_limit))

    def resume(self, job: JobRecord, lines: Sequence[Line]) -> None:
        """Watch the secondary processes after a restart, and go on with what they wait for.

        A process that has come through the attach socket (``lines``) and has no seat was told to ask again, or asks
        just now: a process that is refused for good closes its channel.
        """
        seated = {process.line for process in self._of.get(job.id, ())}
        for line in lines:
            if line.pid is not None and line.name not in seated:
                self.pending(job.id, line.name, line.pid)
        for process in self._of.get(job.id, ()):
            self._watch(job, process)
        self._look(job)

    def ask_again(self, job: JobRecord) -> None:
        """Handle the requests that an earlier daemon did not answer, after a restart, when the core knows the job."""
        for process in tuple(self._of.get(job.id, ())):
            words = process.seat.snapshot()  # `grow_seq` first: the request of that number has been written before
            process.board.wake(process.seat, "grow_ack")
            if is_answered(process.seat, words.grow_seq):
                continue
            if words.grow_class == SHARE:
                self._memory.asks(job, process, words.grow_total, words.grow_seq)
            else:
                answer_growth(process.board, process.seat, Grow.DENIED, words.grow_seq)

    def shares(self, device: DeviceId) -> int:
        """Return the bytes that secondary processes have from a device's driver, within limits, as their seats say."""
        seats = (each.seat for job, of in self._of.items() if self._jobs.live[job].device == device for each in of)
        return sum(min(words.p_limit, words.p_live + words.e_live) for words in map(Seat.snapshot, seats))

    def _add(self, job: JobRecord, process: SecondaryProcess) -> None:
        self._of.setdefault(job.id, []).append(process)
        attached = job.seated.pid if job.seated is not None else None
        self._seating.shims.keep(job.id, {process.kept: process.board.held}, attached)
        self._watch(job, process)

    def _watch(self, job: JobRecord, process: SecondaryProcess) -> None:
        if process.watch is None:
            process.watch = PidWatch(process.pid, lambda: self._gone(job, process))

    def pending(self, job: JobId, line: str, pid: int | None) -> None:
        """Note that a process will ask for a seat with its first use of the device; its gate is shut until then.

        ``line``: its channel; ``pid`` None: no process behind that channel will ask.
        """
        self._pending.setdefault(job, {}).pop(line, None)
        if pid is not None:
            self._pending[job][line] = pid
        if not self._pending[job]:
            del self._pending[job]

    def ours(self, job: JobRecord) -> set[int]:
        """Return the processes of a job that have seats, or have a gate and will ask for a seat."""
        pids = {process.pid for process in self._of.get(job.id, ())} | set(self._pending.get(job.id, {}).values())
        return pids if job.seated is None else pids | {job.seated.pid}

    # Packets

    def packet(self, job: JobRecord, line: Line, packet: Packet) -> None:
        """Handle a packet of a secondary process."""
        for process in tuple(self._of.get(job.id, ())):
            if process.line == line.name:
                self._about_memory(job, process, packet)
        self._look(job)

    def _about_memory(self, job: JobRecord, process: SecondaryProcess, packet: Packet) -> None:
        # The request is known from the seat, after a restart, or a later one has been found there.
        known = is_answered(process.seat, packet.c) or is_before(packet.c, process.seat.get("grow_seq"))
        if packet.type is PacketType.GROW and packet.a != SHARE:
            # The process asked for memory by grant when it had just lost that: it asks the driver next.
            answer_growth(process.board, process.seat, Grow.DENIED, packet.c & 0xFFFFFFFF)
        elif packet.type is PacketType.GROW and not known:
            self._memory.asks(job, process, packet.b, packet.c & 0xFFFFFFFF)
        elif packet.type is PacketType.SHRUNK and packet.a == SHARE:
            self._memory.returns(job, process, packet.b)

    def _several(self, job: JobRecord) -> None:
        job.has_secondary = True
        tell_constraints(job, self._post)

    def _look(self, job: JobRecord) -> None:
        """Grant turns to processes that want to compute, once no other job computes or has the device to itself."""
        timer = self._timers.pop(job.id, None)
        if timer is not None:
            timer.cancel()
        waiting = [one for one in self._of.get(job.id, ()) if one.seat.get("want") and not one.seat.get("turn")]
        if not waiting:
            return
        self._several(job)
        if self._others_compute(job) or self._belongs_to_another(job):
            self._timers[job.id] = asyncio.get_running_loop().call_later(LOOK_S, self._look, job)
            return
        for process in waiting:
            grant_turn(process.board, process.seat)

    def _others_compute(self, job: JobRecord) -> bool:
        lanes = [lane for lane, device in self._seating.lane_device.items() if device == job.device]
        for lane in lanes:
            self._turns.sync(lane)
        return any(self._seating.holder.get(lane, job.id) != job.id for lane in lanes) or self._checkpoint_job_computes(
            job
        )

    def _checkpoint_job_computes(self, job: JobRecord) -> bool:
        """Whether a checkpoint job, which has no seat, computes, comes, leaves, or waits for memory in its turn."""
        assert job.device is not None
        present = self._checkpoint_jobs.present(job.device)
        here = (other for other in self._jobs.live.values() if other.by_checkpoint and other.device == job.device)
        return present is None or bool(present[1]) or any(other.grant_waits is not None for other in here)

    def _belongs_to_another(self, job: JobRecord) -> bool:
        """Whether another job has the device to itself; False in this job's turn, which may need the processes."""
        assert job.device is not None
        has_turn = job.lane is not None and self._seating.holder.get(job.lane) == job.id
        return not has_turn and self._view(job.device).alone not in (None, job.id)

    # Processes go

    def last_word(self, job: JobRecord) -> None:
        """Note the out-of-memory word of the job's main process, which has ended and may be secondary."""
        for process in self._of.get(job.id, ()):
            self._heard(job, process)

    def _heard(self, job: JobRecord, process: SecondaryProcess) -> None:
        if process.pid == job.pid:
            job.out_of = process.seat.get("out_of_memory")

    def forget(self, job: JobRecord) -> None:
        """Free the seats and memory of a job that has ended."""
        self._pending.pop(job.id, None)
        for process in tuple(self._of.get(job.id, ())):
            self._leave(job, process)
        self._memory.forget(job)
        timer = self._timers.pop(job.id, None)
        if timer is not None:
            timer.cancel()

    def _gone(self, job: JobRecord, process: SecondaryProcess) -> None:
        """After the last one the job shares its device again: what it still has computes in its turns."""
        self._memory.gone(job, process)
        self._leave(job, process)
        if job.id not in self._of:
            job.has_secondary = False
            tell_constraints(job, self._post)

    def _leave(self, job: JobRecord, process: SecondaryProcess) -> None:
        if process.watch is not None:
            process.watch.stop()
        self._heard(job, process)
        process.board.free(process.seat.slot)
        self._seating.shims.drop(job.id, [process.kept])
        self._of[job.id].remove(process)
        if not self._of[job.id]:
            del self._of[job.id]
        self._freed.tell()
