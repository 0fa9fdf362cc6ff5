"""Seating attached processes: boards, slots, memory descriptors; and taking seats back."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from carpool.core.model import DeviceId, JobId, LaneId, Settings
from carpool.daemon.boards import Board
from carpool.daemon.jobs import Job, JobTable, Seated
from carpool.daemon.seats import set_limits
from carpool.devices.base import Device
from carpool.protocol.seat import Packet, PacketType

log = logging.getLogger(__name__)

#: Names under which shims keep descriptors: "board:<device>:<slot>", "lane:<lane>", "memory:<device>".
BOARD, LANE, MEMORY = "board", "lane", "memory"


class Seating:
    """Who sits where.  One board per device and owner (more only if shims of an earlier daemon come back late)."""

    def __init__(self, jobs: JobTable, devices: dict[DeviceId, Device], settings: Settings) -> None:
        self._jobs = jobs
        self.devices = devices
        self.grace_us = settings.grace_us
        self.lane_device: dict[LaneId, DeviceId] = {}
        self.holder: dict[LaneId, JobId] = {}  # as the core knows it
        self._boards: dict[tuple[DeviceId, int], list[Board]] = {}
        self.keep: Callable[[JobId, dict[str, int], int | None], None]
        self.drop: Callable[[JobId, list[str]], None]

    def seat(self, job: Job, pid: int) -> list[int]:
        """Give the job's process a seat; returns the descriptors of SETUP.  Raises BoardError, DeviceError."""
        assert job.device is not None and job.lane is not None
        device = self.devices[job.device]
        board = self._board(job.device, job.owner)
        fds = [board.fd, device.lane_fd(job.lane), device.persistent_fd(job.id)]  # before a seat is taken: may fail
        seat = board.take()
        seat.set("grace_us", self.grace_us)
        seat.set("lane", job.lane)
        set_limits(seat, job.granted)
        job.seated = Seated(board, seat, pid)
        job.passed_seq = 0
        names = (f"{BOARD}:{job.device}:{seat.slot}", f"{LANE}:{job.lane}", f"{MEMORY}:{job.device}")
        # The shim keeps duplicates before the job can use anything, so that no crash of ours loses memory in use.
        self.keep(job.id, dict(zip(names, fds, strict=True)), pid)
        return fds

    def setup_fds(self, job: Job) -> list[int]:
        """The descriptors of SETUP: board, lane, persistent memory."""
        assert job.seated is not None and job.device is not None and job.lane is not None
        device = self.devices[job.device]
        return [job.seated.board.fd, device.lane_fd(job.lane), device.persistent_fd(job.id)]

    def setup_packet(self, job: Job) -> Packet:
        assert job.seated is not None and job.device is not None and job.lane is not None
        device = self.devices[job.device]
        return Packet(PacketType.SETUP, 0, job.seated.seat.slot, device.window, job.lane, device.capacity)

    def unseat(self, job: Job) -> None:
        """The attached process is gone: its seat rests, its persistent memory is free."""
        if job.seated is None or job.device is None:
            return
        self.devices[job.device].drop_persistent(job.id)
        seat = job.seated.seat
        self.drop(job.id, [f"{BOARD}:{job.device}:{seat.slot}", f"{LANE}:{job.lane}", f"{MEMORY}:{job.device}"])
        job.seated.board.free(seat.slot)
        job.seated = None

    def in_lane(self, lane: LaneId | None) -> list[Job]:
        """Seated jobs of a lane in order of their ids."""
        return [job for _, job in sorted(self._jobs.live.items()) if job.lane == lane and job.seated is not None]

    def at(self, board: Board, slot: int) -> Job | None:
        """Who sits there at present."""
        for job in self._jobs.live.values():
            if job.seated is not None and job.seated.board is board and job.seated.seat.slot == slot:
                return job
        return None

    def adopt(self, job: Job, kept: dict[str, int], pid: int) -> bool:
        """Take over the seat of a job that an earlier daemon seated.  Owns the descriptors.  False if it had none."""
        names = {name.split(":")[0]: name for name in kept}
        device, _, slot = names.get(BOARD, "").removeprefix(f"{BOARD}:").partition(":")
        if set(names) != {BOARD, LANE, MEMORY} or device not in self.devices:
            for fd in kept.values():
                os.close(fd)
            return False
        board = self._adopt_board(device, job.owner, kept.pop(names[BOARD]))
        self.devices[device].adopt_persistent(job.id, kept.pop(names[MEMORY]))
        job.seated = Seated(board, board.adopt(int(slot)), pid)
        job.device, job.lane = device, job.seated.seat.get("lane")
        self.lane_device[job.lane] = device
        for name, fd in kept.items():
            if name == f"{LANE}:{job.lane}":
                self.devices[device].adopt_lane(job.lane, fd)
            else:  # the earlier daemon died while it moved the job
                job.moving = True
                os.close(fd)
        return True

    def _board(self, device: DeviceId, owner: int) -> Board:
        boards = self._boards.setdefault((device, owner), [])
        if not boards:
            boards.append(Board.create(f"carpool-{device}-board-{owner}"))
        return boards[0]

    def _adopt_board(self, device: DeviceId, owner: int, fd: int) -> Board:
        boards = self._boards.setdefault((device, owner), [])
        inode = os.fstat(fd).st_ino
        for board in boards:
            if board.inode == inode:
                os.close(fd)
                return board
        boards.append(Board(fd))
        return boards[-1]
