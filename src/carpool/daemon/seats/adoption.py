"""Taking over the seats of jobs that an earlier daemon seated: from what their shims have kept."""

from __future__ import annotations

import logging
import os

from carpool.core.model import DeviceId, MemoryClass
from carpool.daemon.jobs.seat_table import Board, BoardError
from carpool.daemon.jobs.table import Job, Pieces
from carpool.daemon.seats.allocator import Seating
from carpool.daemon.seats.kept_fds import BANK, BOARD, LANE, STORE, extent_names, kept_extents, memory_name
from carpool.daemon.system.clock import monotonic_us, wall_us
from carpool.devices.base import Device, DeviceError, Extent, in_extents
from carpool.protocol.seat import Seat

log = logging.getLogger(__name__)
Kept = dict[str, int]
P, E = MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL


class Adopting:
    """Checks everything that a shim has kept before any of it is taken over."""

    def __init__(self, seating: Seating) -> None:
        self._seating = seating

    def adopt(self, job: Job, kept: Kept, pid: int) -> bool:
        """Take over a job's seat.  Owns the descriptors.  False if it had none, or something of it is missing."""
        kinds = {name.split(":")[0]: name for name in kept}
        device_id, _, slot = kinds.get(BOARD, "").removeprefix(f"{BOARD}:").partition(":")
        try:
            if STORE not in kinds or device_id not in self._seating.devices:
                raise BoardError("not what this version keeps")
            device = self._seating.devices[device_id]
            device.check_store(kept[kinds[STORE]])
            part: _Part = _Extents(device) if in_extents(device) else _Files(device)
            part.check(job, kept)
            board = self.board(device_id, job.owner, kept, kinds[BOARD])
            part.check_seat(job, board.seat(int(slot)), kept)
        except (BoardError, DeviceError, OSError, ValueError) as error:
            log.error("job %d cannot be taken over: %s", job.id, error)
            _close(kept)
            return False
        device.adopt_store(job.id, kept.pop(kinds[STORE]))
        seat = board.adopt(int(slot))
        self._seating.tell_debugging(seat)
        started = monotonic_us() - max(0, wall_us() - job.started_us) if job.started_us else 0
        job.device, job.lane = device_id, seat.get("lane")
        job.seated = self._seating.seated(job, board, seat, pid, started)
        self._seating.lane_device[job.lane] = device_id
        part.take(job, kept)
        return True

    def board(self, device: DeviceId, owner: int, kept: Kept, name: str) -> Board:
        """Takes the board out of ``kept``.  Raises BoardError."""
        boards = self._seating.boards(device, owner)
        inode = os.fstat(kept[name]).st_ino
        known = next((board for board in boards if board.inode == inode), None)
        board = known or Board(kept[name])
        fd = kept.pop(name)
        if known is None:
            boards.append(board)  # it owns the descriptor
        else:
            os.close(fd)
        return board


class _Files:
    """Lanes and banks of one file each."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def check(self, job: Job, kept: Kept) -> None:
        if not {LANE, BANK} <= {name.split(":")[0] for name in kept}:
            raise BoardError("not what this version keeps")
        for name, fd in kept.items():
            if name.startswith(f"{BANK}:"):
                self._device.check_bank(_number(name), job.owner, [_whole(fd)])

    def check_seat(self, job: Job, seat: Seat, kept: Kept) -> None:
        if f"{BANK}:{self._device.id}:{seat.get('bank')}" not in kept:
            raise BoardError(f"its bank {seat.get('bank')} is not among what was kept")

    def take(self, job: Job, kept: Kept) -> None:
        for name, fd in kept.items():
            if name.startswith(BANK):
                job.kept_banks.add(_number(name))
                self._device.adopt_bank(_number(name), job.owner, [_whole(fd)])
            elif name == f"{LANE}:{job.lane}":
                assert job.lane is not None
                self._device.adopt_lane(job.lane, [_whole(fd)])
            else:  # the earlier daemon died while it moved the job
                job.moving = True
                os.close(fd)


class _Extents:
    """Lanes and banks of any number of extents, none of which may be missing where the job may compute."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def check(self, job: Job, kept: Kept) -> None:
        pass

    def check_seat(self, job: Job, seat: Seat, kept: Kept) -> None:
        if job.submitted_exclusive:
            return  # it has nothing of ours
        for kind, limit in ((P, seat.get("p_limit")), (E, seat.get("e_limit"))):
            files = self._found(kind, seat, kept)
            if sum(file.size for file in files) < limit:
                raise DeviceError(f"less {kind} memory was kept than it may use")
            if kind is P:
                self._device.check_bank(seat.get("bank"), job.owner, files)

    def take(self, job: Job, kept: Kept) -> None:
        assert job.seated is not None and job.lane is not None
        job.found, seat = True, job.seated.seat
        for kind, number in ((P, seat.get("bank")), (E, job.lane)):
            files = [] if job.seated.whole else self._found(kind, seat, kept)
            job.pieces[kind] = Pieces(number, [file.size for file in files])
            for name in extent_names(memory_name(kind, self._device.id, number), job.pieces[kind].sizes):
                del kept[name]
            if kind is E:
                self._device.adopt_lane(number, files)
            elif not job.seated.whole:
                job.kept_banks = {number}
                self._device.adopt_bank(number, job.owner, files)
        _close(kept)  # of what it had before, and was about to leave

    def _found(self, kind: MemoryClass, seat: Seat, kept: Kept) -> list[Extent]:
        number = seat.get("bank" if kind is P else "lane")
        return kept_extents(memory_name(kind, self._device.id, number), kept)


_Part = _Files | _Extents


def _number(name: str) -> int:
    return int(name.rpartition(":")[2])


def _whole(fd: int) -> Extent:
    """What a shim kept under the name of a lane or bank: all of it, in one file."""
    return Extent(fd, os.fstat(fd).st_size)


def _close(kept: Kept) -> None:
    for fd in kept.values():
        os.close(fd)
