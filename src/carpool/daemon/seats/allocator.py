"""Assigning seats of the boards to processes; jobs that wait for memory hear when some may have become free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from carpool.core.model import DeviceId, JobId, LaneId, Settings
from carpool.daemon.jobs.seat_table import Board, BoardError, OwnedFd
from carpool.daemon.jobs.table import JobRecord, JobTable, Seated
from carpool.daemon.seats.kept_fds import BOARD, STORE
from carpool.daemon.seats.layouts import layout_of
from carpool.daemon.seats.ledger import GrantLedger
from carpool.daemon.seats.record import set_grace
from carpool.daemon.system.clock import monotonic_us
from carpool.devices.base import BankId, DeviceBackend, single
from carpool.protocol.seat import Packet, PacketType, Seat, Whole


class MemoryFreed:
    """Notified by seats, secondary processes and copies; listened to by waiting grants and by the files of weights."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` from now on, after those that listen already."""
        self._listeners.append(listener)

    def tell(self) -> None:
        """Notify the listeners: a process has left its device, or a copy for a job that is gone has ended."""
        for listener in self._listeners:
            listener()


class FdStore(Protocol):
    """The shims, which hold duplicates of descriptors (`carpool.daemon.shims.shim_table`)."""

    ledger: GrantLedger

    def keep(self, job: JobId, memory: Mapping[str, OwnedFd], attached_pid: int | None) -> None:
        """Let the job's shim keep these descriptors under these names; no effect without a shim.  Raises WrongOwner."""
        ...

    def drop(self, job: JobId, names: list[str]) -> None:
        """Let the job's shim close the descriptors of these names."""
        ...


class CopyState(Protocol):
    """Knows which copies are under way (`carpool.daemon.memory.copies`)."""

    def under_way(self, job: JobRecord) -> bool:
        """Return whether a copy needs the job's bank; at its end the copy frees the bank if the job is gone by then."""
        ...


class SeatAllocator:
    """Assigns seats.  One board per device and owner; more only if shims of an earlier daemon come back late."""

    def __init__(
        self,
        jobs: JobTable,
        devices: dict[DeviceId, DeviceBackend],
        settings: Settings,
        shims: FdStore,
        copies: CopyState,
        freed: MemoryFreed,
        close_lanes: bool = False,
    ) -> None:
        """``close_lanes``, for debugging: close memory in extents between turns."""
        self._jobs = jobs
        self.devices = devices
        self.layouts = {name: layout_of(device) for name, device in devices.items()}
        self.shims = shims
        self._copies = copies
        self._freed = freed
        self.ledger = shims.ledger
        self.grace_us = settings.grace_us
        self._run_ahead_us = settings.run_ahead_us
        self._close_lanes = close_lanes
        self.lane_device: dict[LaneId, DeviceId] = {}
        self.lane_owner: dict[LaneId, int] = {}  # the user whose jobs may have a lane's memory
        self.holder: dict[LaneId, JobId] = {}  # the holder of each lane's turn as the core knows it
        self.predecessor: dict[LaneId, JobId] = {}  # the job, if any, that has handed the present turn to its holder
        self._boards: dict[tuple[DeviceId, int], list[Board]] = {}

    def apply(self, settings: Settings) -> None:
        """Apply changed settings, also to seats that are taken."""
        self.grace_us, self._run_ahead_us = settings.grace_us, settings.run_ahead_us
        self.bound_run_ahead()
        for job in self._jobs.live.values():
            if job.seated is not None:
                set_grace(job.seated.seat, settings.grace_us)

    def give_turn(self, lane: LaneId, job: JobId, predecessor: JobId | None = None) -> None:
        """Record that a job has the lane's turn.  ``predecessor``: the job that handed it over; None: the core did."""
        self.holder[lane] = job
        if predecessor is None:
            self.predecessor.pop(lane, None)
        else:
            self.predecessor[lane] = predecessor

    def free_turn(self, lane: LaneId) -> None:
        """Record that no job has the lane's turn."""
        self.holder.pop(lane, None)
        self.predecessor.pop(lane, None)

    def forget_lane(self, lane: LaneId) -> None:
        """Forget a lane that has been closed."""
        self.free_turn(lane)
        del self.lane_device[lane], self.lane_owner[lane]

    def seat(self, job: JobRecord, pid: int) -> list[OwnedFd]:
        """Give the job's process a seat; return the memory for the SETUP packet.  Raises BoardError, DeviceError."""
        assert job.device is not None and job.lane is not None
        device = self.devices[job.device]
        board = self.board(job.device, job.owner)
        device.lane_files(job.lane), device.store_fd(job.id)  # before any resource is taken, as this may fail
        layout = self.layouts[job.device]
        whole = layout.driver_serves(job)
        job.bank = None if whole else device.take_bank(job.owner, 0, None)
        try:
            seat = board.take()
        except BoardError:
            if job.bank is not None:
                device.free_bank(job.bank)
            raise
        set_grace(seat, self.grace_us)
        seat.set("whole", Whole.ALL if whole else Whole.NO)
        self.tell_debugging(seat)
        job.seated = self.seated(job, board, seat, pid, monotonic_us())
        job.passed_seq, job.kept_banks = 0, set() if job.bank is None else {job.bank}
        self.tell_lane(job, seat, job.lane)
        self.tell_bank(job, seat, job.bank or 0)
        self.ledger.limit(job.id, job.granted)
        layout.begin(job)
        memory = self.setup_memory(job)
        # The shim keeps duplicates before the job can use the memory, so no crash of the daemon loses memory in use.
        kept = [memory[0], OwnedFd(job.owner, job.seated.store_fd), *memory[1:3]]
        self.shims.keep(job.id, dict(zip(self.names(job), kept, strict=True)), pid)
        self.bound_run_ahead()
        return memory

    def tell_lane(self, job: JobRecord, seat: Seat, lane: LaneId) -> None:
        """Move the job's process to this lane: first in the ledger, which the next daemon trusts, then in the seat."""
        self.ledger.move(job.id, lane)
        seat.set("lane", lane)

    def tell_bank(self, job: JobRecord, seat: Seat, bank: BankId) -> None:
        """Give the job's process this bank, in the ledger and in the seat."""
        self.ledger.give_bank(job.id, bank)
        seat.set("bank", bank)

    def bound_run_ahead(self) -> None:
        """Bound the work that jobs queue ahead of a service on their device (``src/native/cuda/turn/backlog.c``)."""
        seated = [job for job in self._jobs.live.values() if job.seated is not None]
        served = {job.device for job in seated if job.spec.service is not None}
        for job in seated:
            bounded = job.attached.extents and job.spec.service is None and job.device in served
            bound = self._run_ahead_us if bounded else 0
            if job.attached.seat.get("ahead_us") != bound:
                job.attached.seat.set("ahead_us", bound)
                job.attached.notify()

    def tell_debugging(self, seat: Seat) -> None:
        """Write the debugging settings into the seat of a new process, or of one that an earlier daemon seated."""
        seat.set("close_lane", self._close_lanes)

    def seated(self, job: JobRecord, board: Board, seat: Seat, pid: int, since_us: int) -> Seated:
        """Return the record of a job that has this seat."""
        assert job.device is not None
        layout = self.layouts[job.device]
        store = self.devices[job.device].store_fd(job.id)
        job.was_seated = True
        return Seated(board, seat, pid, store, since_us, layout.extents, layout.driver_serves(job))

    def setup_memory(self, job: JobRecord) -> list[OwnedFd]:
        """Return the memory for SETUP: board, lane, bank, store, or only the board.  Raises BoardError, DeviceError."""
        assert job.device is not None and job.lane is not None
        return [job.attached.board.held, *self.layouts[job.device].setup_memory(job, self.lane_owner[job.lane])]

    def lane_memory(self, lane: LaneId) -> OwnedFd:
        """Return the memory of a lane that is one file.  Raises DeviceError."""
        return OwnedFd(self.lane_owner[lane], single(self.devices[self.lane_device[lane]].lane_files(lane)))

    def bank_memory(self, device: DeviceId, bank: BankId) -> OwnedFd:
        """Return the memory of a bank that is one file.  Raises DeviceError."""
        return OwnedFd(self.devices[device].bank_owner(bank), single(self.devices[device].bank_files(bank)))

    def setup_packet(self, job: JobRecord) -> Packet:
        """Return the packet that tells a process of its seat, lane and bank."""
        assert job.device is not None and job.lane is not None
        device = self.devices[job.device]
        numbers = (job.attached.seat.slot, device.window, job.lane, device.capacity, job.bank or 0)
        return Packet(PacketType.SETUP, 0, *numbers)

    def unseat(self, job: JobRecord) -> None:
        """Take back the seat of an attached process that is gone, free its bank and drop its store."""
        if job.seated is None or job.device is None:
            return
        device = self.devices[job.device]
        if not self._copies.under_way(job):  # otherwise the bank becomes free as soon as the copy has ended
            self.free_bank(job)
        device.drop_store(job.id)
        if job.seated.pid == job.pid:  # the end of another process is not the end of the job
            job.out_of = job.seated.seat.get("out_of_memory")
        job.left_seat = job.seated.seat.snapshot()
        self.shims.drop(job.id, self.names(job))
        job.seated.board.free(job.seated.seat.slot)
        job.seated, job.bank, job.bank_sent, job.kept_banks = None, None, True, set()
        job.pieces, job.cuts, job.grant_waits, job.adopted_unreported, job.restored = {}, {}, None, False, False
        job.offloading = job.turn_due = False
        job.grow_seq = 0  # the next process counts anew
        job.traits = 0
        job.weights, job.weights_sent = set(), set()
        self.bound_run_ahead()
        if not self._anybody(job.device, job.owner):
            device.close_banks(job.owner)
        self._freed.tell()

    def free_bank(self, job: JobRecord) -> None:
        """Free a job's bank, whose content is not needed.  The shim keeps the descriptor: the bank often comes back."""
        if job.bank is not None and job.device is not None:
            self.devices[job.device].free_bank(job.bank)
            job.bank, job.restored = None, False

    def at(self, board: Board, slot: int) -> JobRecord | None:
        """Return the job that has this seat at present; None: none."""
        for job in self._jobs.live.values():
            if job.seated is not None and job.seated.board is board and job.seated.seat.slot == slot:
                return job
        return None

    def names(self, job: JobRecord) -> list[str]:
        """List the names under which the job's shim keeps the parts of its seat: board, store, weights, lane, bank."""
        assert job.device is not None
        names = [f"{BOARD}:{job.device}:{job.attached.seat.slot}", f"{STORE}:{job.device}", *sorted(job.weights)]
        return [*names, *self.layouts[job.device].names(job)]

    def _anybody(self, device: DeviceId, owner: int) -> bool:
        """Return whether a process of that owner has a seat on the device."""
        return any(
            job.seated is not None and (job.device, job.owner) == (device, owner) for job in self._jobs.live.values()
        )

    def board(self, device: DeviceId, owner: int) -> Board:
        """Return the owner's first board on a device, made if there is none."""
        boards = self.boards(device, owner)
        if not boards:
            boards.append(Board.create(f"carpool-{device}-board-{owner}", owner, self.layouts[device].kind))
        return boards[0]

    def boards(self, device: DeviceId, owner: int) -> list[Board]:
        """Return the owner's boards on a device; several only after a restart."""
        return self._boards.setdefault((device, owner), [])


def whole_of_further(job: JobRecord) -> Whole:
    """Return how a secondary process gets memory: without limit if the job has its devices to itself, else a share."""
    return Whole.ALL if job.submitted_exclusive else Whole.SHARE
