"""Seating attached processes: boards, slots, memory descriptors; and taking seats back."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from carpool.core.model import DeviceId, JobId, LaneId, Settings
from carpool.daemon.boards import Board, BoardError
from carpool.daemon.clock import monotonic_us, wall_us
from carpool.daemon.jobs import Job, JobTable, Seated
from carpool.daemon.seats import set_grace, set_limits
from carpool.devices.base import Device, DeviceError, Extent, single
from carpool.protocol.seat import Packet, PacketType, Seat

log = logging.getLogger(__name__)

#: Names under which shims keep descriptors: "board:<device>:<slot>", "lane:<lane>", "bank:<device>:<bank>",
#: "store:<device>".
BOARD, LANE, BANK, STORE = "board", "lane", "bank", "store"


class Seating:
    """Who sits where.  One board per device and owner (more only if shims of an earlier daemon come back late)."""

    def __init__(self, jobs: JobTable, devices: dict[DeviceId, Device], settings: Settings) -> None:
        self._jobs = jobs
        self.devices = devices
        self.grace_us = settings.grace_us
        self.lane_device: dict[LaneId, DeviceId] = {}
        self.holder: dict[LaneId, JobId] = {}  # as the core knows it
        self.giver: dict[LaneId, JobId] = {}  # which job has handed the present turn to its holder, if one has
        self._boards: dict[tuple[DeviceId, int], list[Board]] = {}
        self.keep: Callable[[JobId, dict[str, int], int | None], None]
        self.drop: Callable[[JobId, list[str]], None]

    def seat(self, job: Job, pid: int) -> list[int]:
        """Give the job's process a seat; returns the descriptors of SETUP.  Raises BoardError, DeviceError."""
        assert job.device is not None and job.lane is not None
        device = self.devices[job.device]
        board = self._board(job.device, job.owner)
        single(device.lane_files(job.lane)), device.store_fd(job.id)  # before anything is taken: may fail
        job.bank = device.take_bank(job.owner, 0, None)
        try:
            seat = board.take()
        except BoardError:
            device.free_bank(job.bank)
            raise
        set_grace(seat, self.grace_us)
        seat.set("lane", job.lane)
        seat.set("bank", job.bank)
        set_limits(seat, job.granted)
        job.seated = self._seated(job.device, job, board, seat, pid, monotonic_us())
        job.passed_seq, job.kept_banks = 0, {job.bank}
        fds = self.setup_fds(job)
        # The shim keeps duplicates before the job can use anything, so that no crash of ours loses memory in use.
        self.keep(job.id, dict(zip(self._names(job), fds, strict=True)), pid)
        return fds

    def setup_fds(self, job: Job) -> list[int]:
        """The descriptors of SETUP: board, lane, bank, store."""
        assert job.seated is not None and job.device is not None and job.lane is not None
        device, bank = self.devices[job.device], job.seated.seat.get("bank")
        files = device.lane_files(job.lane), device.bank_files(bank)
        return [job.seated.board.fd, *map(single, files), device.store_fd(job.id)]

    def setup_packet(self, job: Job) -> Packet:
        assert job.seated is not None and job.device is not None and job.lane is not None
        device, seat = self.devices[job.device], job.seated.seat
        numbers = (seat.slot, device.window, job.lane, device.capacity, seat.get("bank"))
        return Packet(PacketType.SETUP, 0, *numbers)

    def unseat(self, job: Job) -> None:
        """The attached process is gone: its seat rests, its bank is free, and what was in its store is nobody's."""
        if job.seated is None or job.device is None:
            return
        device = self.devices[job.device]
        if job.bank is not None:
            device.free_bank(job.bank)
        device.drop_store(job.id)
        self.drop(job.id, self._names(job))
        job.seated.board.free(job.seated.seat.slot)
        job.seated, job.bank, job.bank_sent, job.kept_banks = None, None, True, set()
        job.offloading = job.turn_due = False
        if not self._anybody(job.device, job.owner):
            device.close_banks(job.owner)

    def at(self, board: Board, slot: int) -> Job | None:
        """Who sits there at present."""
        for job in self._jobs.live.values():
            if job.seated is not None and job.seated.board is board and job.seated.seat.slot == slot:
                return job
        return None

    def adopt(self, job: Job, kept: dict[str, int], pid: int) -> bool:
        """Take over the seat of a job that an earlier daemon seated.  Owns the descriptors.  False if it had none."""
        kinds = {name.split(":")[0]: name for name in kept}
        device, _, slot = kinds.get(BOARD, "").removeprefix(f"{BOARD}:").partition(":")
        try:
            if set(kinds) != {BOARD, LANE, BANK, STORE} or device not in self.devices:
                raise BoardError("not what this version keeps")
            self._check(self.devices[device], job.owner, kept)
            board, seat = self._adopt_board(device, job.owner, kept, kinds[BOARD], int(slot))
        except (BoardError, DeviceError, OSError, ValueError) as error:
            log.error("job %d cannot be taken over: %s", job.id, error)
            _close(kept)
            return False
        self.devices[device].adopt_store(job.id, kept.pop(kinds[STORE]))
        started = monotonic_us() - max(0, wall_us() - job.started_us) if job.started_us else 0
        job.seated = self._seated(device, job, board, seat, pid, started)
        job.device, job.lane = device, seat.get("lane")
        self.lane_device[job.lane] = device
        for name, fd in kept.items():
            if name.startswith(BANK):
                number = int(name.rpartition(":")[2])
                job.kept_banks.add(number)
                self.devices[device].adopt_bank(number, job.owner, [_extent(fd)])
            elif name == f"{LANE}:{job.lane}":
                self.devices[device].adopt_lane(job.lane, [_extent(fd)])
            else:  # the earlier daemon died while it moved the job
                job.moving = True
                os.close(fd)
        return True

    def _seated(self, device: DeviceId, job: Job, board: Board, seat: Seat, pid: int, since_us: int) -> Seated:
        return Seated(board, seat, pid, self.devices[device].store_fd(job.id), since_us)

    def _check(self, device: Device, owner: int, kept: dict[str, int]) -> None:
        """Raises DeviceError, ValueError."""
        for name, fd in kept.items():
            if name.startswith(f"{BANK}:"):
                device.check_bank(int(name.rpartition(":")[2]), owner, [_extent(fd)])
            elif name.startswith(f"{STORE}:"):
                device.check_store(fd)

    def _names(self, job: Job) -> list[str]:
        """Under which the shim keeps what belongs to the seat."""
        assert job.seated is not None
        banks = [f"{BANK}:{job.device}:{bank}" for bank in sorted(job.kept_banks)]
        return [f"{BOARD}:{job.device}:{job.seated.seat.slot}", f"{LANE}:{job.lane}", *banks, f"{STORE}:{job.device}"]

    def _anybody(self, device: DeviceId, owner: int) -> bool:
        """Whether a process of that owner has a seat on the device."""
        return any(
            job.seated is not None and (job.device, job.owner) == (device, owner) for job in self._jobs.live.values()
        )

    def _board(self, device: DeviceId, owner: int) -> Board:
        boards = self._boards.setdefault((device, owner), [])
        if not boards:
            boards.append(Board.create(f"carpool-{device}-board-{owner}"))
        return boards[0]

    def _adopt_board(
        self, device: DeviceId, owner: int, kept: dict[str, int], name: str, slot: int
    ) -> tuple[Board, Seat]:
        """Takes the board out of ``kept`` if the seat there fits the rest.  Raises BoardError, ValueError."""
        boards = self._boards.setdefault((device, owner), [])
        inode = os.fstat(kept[name]).st_ino
        known = next((board for board in boards if board.inode == inode), None)
        board = known or Board(kept[name])
        seat = board.seat(slot)
        if f"{BANK}:{device}:{seat.get('bank')}" not in kept:
            if known is None:
                kept.pop(name)
                boards.append(board)  # it owns the descriptor
            raise BoardError(f"its bank {seat.get('bank')} is not among what was kept")
        fd = kept.pop(name)
        if known is None:
            boards.append(board)
        else:
            os.close(fd)
        return board, board.adopt(slot)


def _extent(fd: int) -> Extent:
    """What a shim kept under the name of a lane or bank: all of it, in one file."""
    return Extent(fd, os.fstat(fd).st_size)


def _close(kept: dict[str, int]) -> None:
    for fd in kept.values():
        os.close(fd)
