"""Further processes of a job on its CUDA device: companions of the one that has the job's seat.

They communicate with it as often as not, and what one of them holds back may be what another waits for.  So a job
that has some has its device to itself.  A companion has a seat of its own, memory from the driver itself, and a gate
that opens once, as soon as no other job of the device holds a turn, and stays open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from carpool.core.events import Event
from carpool.core.model import DeviceId, JobId
from carpool.daemon.boards import Board
from carpool.daemon.jobs import Job, JobTable, Seated
from carpool.daemon.keepsakes import COMPANION
from carpool.daemon.lines import Line
from carpool.daemon.pidwatch import PidWatch
from carpool.daemon.sampler import tell_traits
from carpool.daemon.seating import Seating
from carpool.daemon.seats import answer_growth, grant_turn, set_grace
from carpool.daemon.turns import Turns
from carpool.protocol.seat import Grow, Packet, PacketType, Seat

log = logging.getLogger(__name__)
LOOK_S = 0.05


@dataclass(eq=False, slots=True)
class Companion:
    line: str  # the name of its channel
    board: Board
    seat: Seat
    pid: int
    kept: str  # under which the shim keeps the board for it
    watch: PidWatch | None = None


class Companions:
    """``present`` and ``loner`` of a device: what `Checkpointing.present` says, and who has it to itself."""

    def __init__(self, jobs: JobTable, seating: Seating, turns: Turns, post: Callable[[Event], None]) -> None:
        self._jobs = jobs
        self._seating = seating
        self._turns = turns
        self._post = post
        self._of: dict[JobId, list[Companion]] = {}
        self._timers: dict[JobId, asyncio.TimerHandle] = {}
        self.answer: Callable[[Line, Packet, list[int]], None]
        self.present: Callable[[DeviceId], tuple[int, frozenset[JobId]] | None] = lambda _device: (0, frozenset())
        self.loner: Callable[[DeviceId], JobId | None] = lambda _device: None

    # They come

    def seat(self, job: Job, line: Line, pid: int) -> None:
        """Give it a seat, and the job its device.  Raises BoardError."""
        assert job.device is not None and job.lane is not None
        if any(companion.line == line.name for companion in self._of.get(job.id, ())):
            return  # an answer that is on its way
        board = self._seating.board(job.device, job.owner)
        seat = board.take()
        set_grace(seat, self._seating.grace_us)
        seat.set("lane", job.lane)
        seat.set("whole", 1)
        self._add(job, Companion(line.name, board, seat, pid, f"{COMPANION}:{job.device}:{seat.slot}:{pid}"))
        device = self._seating.devices[job.device]
        numbers = (seat.slot, device.window, job.lane, device.capacity, 0)
        self.answer(line, Packet(PacketType.SETUP, 0, *numbers), [board.fd])
        self._several(job)

    def convert(self, job: Job, line: str, seated: Seated) -> None:
        """It had the job's seat and never used it: it keeps its place on the board."""
        name = f"{COMPANION}:{job.device}:{seated.seat.slot}:{seated.pid}"
        self._add(job, Companion(line, seated.board, seated.seat, seated.pid, name))
        self._look(job)

    def adopt(self, job: Job, line: Line, name: str, board: Board) -> None:
        """An earlier daemon seated it."""
        _, _, slot, pid = name.split(":")
        companion = Companion(line.name, board, board.adopt(int(slot)), int(pid), name)
        self._of.setdefault(job.id, []).append(companion)
        job.several |= bool(companion.seat.get("turns") or companion.seat.get("want") or companion.seat.get("fixed"))

    def resume(self, job: Job) -> None:
        """After a restart: notice their ends, and go on with what they wait for."""
        for companion in self._of.get(job.id, ()):
            self._watch(job, companion)
        self._look(job)

    def _add(self, job: Job, companion: Companion) -> None:
        self._of.setdefault(job.id, []).append(companion)
        attached = job.seated.pid if job.seated is not None else None
        self._seating.keep(job.id, {companion.kept: companion.board.fd}, attached)
        self._watch(job, companion)

    def _watch(self, job: Job, companion: Companion) -> None:
        if companion.watch is None:
            companion.watch = PidWatch(companion.pid, lambda: self._gone(job, companion))

    # They speak

    def packet(self, job: Job, line: Line, packet: Packet) -> None:
        for companion in self._of.get(job.id, ()):
            if companion.line == line.name and packet.type is PacketType.GROW:
                # It began to ask for memory by grant when it had just lost that: it asks the driver next.
                answer_growth(companion.board, companion.seat, Grow.DENIED, packet.c & 0xFFFFFFFF)
        self._look(job)

    def _several(self, job: Job) -> None:
        job.several = True
        tell_traits(job, self._post)

    def _look(self, job: Job) -> None:
        """Those that want to compute may, as soon as no other job does, and none has the device to itself."""
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
        for companion in waiting:
            grant_turn(companion.board, companion.seat)

    def _others_compute(self, job: Job) -> bool:
        lanes = [lane for lane, device in self._seating.lane_device.items() if device == job.device]
        for lane in lanes:
            self._turns.sync(lane)
        return any(self._seating.holder.get(lane, job.id) != job.id for lane in lanes) or self._guest_computes(job)

    def _guest_computes(self, job: Job) -> bool:
        """Or comes, or leaves, or waits for memory, in its turn: jobs of the checkpoint engine have no seats."""
        assert job.device is not None
        present = self.present(job.device)
        guests = (other for other in self._jobs.live.values() if other.guest and other.device == job.device)
        return present is None or bool(present[1]) or any(guest.grant_waits is not None for guest in guests)

    def _belongs_to_another(self, job: Job) -> bool:
        """The device.  But a turn that the job still has may need its companions to come to an end."""
        assert job.device is not None
        has_turn = job.lane is not None and self._seating.holder.get(job.lane) == job.id
        return not has_turn and self.loner(job.device) not in (None, job.id)

    # They go

    def forget(self, job: Job) -> None:
        """The job has ended."""
        for companion in tuple(self._of.get(job.id, ())):
            self._gone(job, companion)
        timer = self._timers.pop(job.id, None)
        if timer is not None:
            timer.cancel()

    def _gone(self, job: Job, companion: Companion) -> None:
        if companion.watch is not None:
            companion.watch.stop()
        companion.board.free(companion.seat.slot)
        self._seating.drop(job.id, [companion.kept])
        self._of[job.id].remove(companion)
        if not self._of[job.id]:
            del self._of[job.id]
        self._seating.freed()
