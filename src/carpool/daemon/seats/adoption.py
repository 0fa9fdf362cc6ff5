"""Taking over the seats of jobs that an earlier daemon seated, from what the jobs' shims have kept."""

from __future__ import annotations

import logging
import os

from carpool.core.model import DeviceId
from carpool.daemon.jobs.seat_table import Board, BoardError
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.seats.allocator import SeatAllocator
from carpool.daemon.seats.kept_fds import BOARD, STORE
from carpool.daemon.seats.layouts import Kept
from carpool.daemon.system.clock import monotonic_us, wall_us
from carpool.daemon.system.errors import may_pass
from carpool.daemon.system.log_limit import caused_by
from carpool.devices.base import DeviceError

log = logging.getLogger(__name__)


class Adopting:
    """Checks everything that a shim has kept before taking over any of it."""

    def __init__(self, seating: SeatAllocator) -> None:
        self._seating = seating

    def adopt(self, job: JobRecord, kept: Kept, pid: int) -> str:
        """Take over a job's seat, owning the descriptors; return why not if the seat or a part of it is missing.

        Raises OSError if the system lacks resources for that at present.
        """
        kinds = {name.split(":")[0]: name for name in kept}
        device_id, _, slot = kinds.get(BOARD, "").removeprefix(f"{BOARD}:").partition(":")
        try:
            if STORE not in kinds or device_id not in self._seating.devices:
                raise BoardError("not in the format of this version")
            device = self._seating.devices[device_id]
            device.check_store(kept[kinds[STORE]])
            layout = self._seating.layouts[device_id]
            layout.check(job, kept)
            board = self.board(device_id, job.owner, kept, kinds[BOARD])
            words = board.seat(int(slot)).snapshot()
            entry = self._seating.ledger.given(job.id, words)
            if entry.lane is None:
                raise BoardError("it was given no lane")
            if self._seating.lane_owner.get(entry.lane, job.owner) != job.owner:
                raise BoardError(f"its lane {entry.lane} is another user's")
            layout.check_seat(job, entry, kept, words.handles)
        except (BoardError, DeviceError, OSError, ValueError) as error:
            log.error("job %d cannot be taken over: %s", job.id, error, extra=caused_by(job.owner))
            _close(kept)
            if isinstance(error, OSError) and may_pass(error):
                raise
            return f"its memory cannot be taken over: {error}"
        device.adopt_store(job.id, kept.pop(kinds[STORE]))
        seat = board.adopt(int(slot))
        self._seating.tell_debugging(seat)
        started = monotonic_us() - max(0, wall_us() - job.started_us) if job.started_us else 0
        job.device, job.lane = device_id, entry.lane
        job.seated = self._seating.seated(job, board, seat, pid, started)
        self._seating.lane_device[job.lane], self._seating.lane_owner[job.lane] = device_id, job.owner
        layout.take_over(job, entry, kept)
        return ""

    def board(self, device: DeviceId, owner: int, kept: Kept, name: str) -> Board:
        """Take the board out of ``kept`` and return it.  Raises BoardError."""
        boards = self._seating.boards(device, owner)
        inode = os.fstat(kept[name]).st_ino
        known = next((board for board in boards if board.inode == inode), None)
        board = known or Board(kept[name], owner)
        fd = kept.pop(name)
        if known is None:
            boards.append(board)  # the board owns the descriptor
        else:
            os.close(fd)
        return board


def _close(kept: Kept) -> None:
    for fd in kept.values():
        os.close(fd)
