"""Seating attached processes: boards, slots, memory descriptors; and taking seats back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from carpool.core.model import DeviceId, JobId, LaneId, Settings
from carpool.daemon.jobs.held import Held
from carpool.daemon.jobs.seat_table import Board, BoardError
from carpool.daemon.jobs.table import JobRecord, JobTable, Seated
from carpool.daemon.seats.kept_fds import BOARD, STORE
from carpool.daemon.seats.layouts import layout_of
from carpool.daemon.seats.ledger import GrantLedger
from carpool.daemon.seats.memory_freed import MemoryFreed
from carpool.daemon.seats.record import set_grace
from carpool.daemon.system.clock import monotonic_us
from carpool.devices.base import BankId, DeviceBackend, single
from carpool.protocol.seat import Packet, PacketType, Seat, Whole


class FdStore(Protocol):
    """The shims, which hold duplicates of descriptors (`carpool.daemon.shims.links`)."""

    def keep(self, job: JobId, memory: Mapping[str, Held], attached_pid: int | None) -> None:
        """From now on, under these names; nothing happens for a job whose shim is not there.  Raises WrongOwner."""
        ...

    def drop(self, job: JobId, names: list[str]) -> None:
        """Not any more."""
        ...


class CopyState(Protocol):
    """Who knows of copies (`carpool.daemon.memory.copies`)."""

    def under_way(self, job: JobRecord) -> bool:
        """Whether a copy keeps the job's bank; it frees the bank itself if the job is gone when it ends."""
        ...


class Seating:
    """Who sits where.  One board per device and owner (more only if shims of an earlier daemon come back late)."""

    def __init__(
        self,
        jobs: JobTable,
        devices: dict[DeviceId, DeviceBackend],
        settings: Settings,
        shims: FdStore,
        copies: CopyState,
        freed: MemoryFreed,
        ledger: GrantLedger,
        close_lanes: bool = False,
    ) -> None:
        """``close_lanes``, for debugging: memory in extents is closed between turns."""
        self._jobs = jobs
        self.devices = devices
        self.layouts = {name: layout_of(device) for name, device in devices.items()}
        self.shims = shims
        self._copies = copies
        self._freed = freed
        self.ledger = ledger
        self.grace_us = settings.grace_us
        self._run_ahead_us = settings.run_ahead_us
        self._close_lanes = close_lanes
        self.lane_device: dict[LaneId, DeviceId] = {}
        self.lane_owner: dict[LaneId, int] = {}  # whose jobs may have a lane's memory
        self.holder: dict[LaneId, JobId] = {}  # as the core knows it
        self.predecessor: dict[LaneId, JobId] = {}  # which job has handed the present turn to its holder, if one has
        self._boards: dict[tuple[DeviceId, int], list[Board]] = {}

    def apply(self, settings: Settings) -> None:
        """Settings have changed: seats that are taken follow at once."""
        self.grace_us, self._run_ahead_us = settings.grace_us, settings.run_ahead_us
        self.bound_run_ahead()
        for job in self._jobs.live.values():
            if job.seated is not None:
                set_grace(job.seated.seat, settings.grace_us)

    def give_turn(self, lane: LaneId, job: JobId, predecessor: JobId | None = None) -> None:
        """The lane's turn is the job's from now on; ``predecessor``: the job that handed it over, None: the core."""
        self.holder[lane] = job
        if predecessor is None:
            self.predecessor.pop(lane, None)
        else:
            self.predecessor[lane] = predecessor

    def free_turn(self, lane: LaneId) -> None:
        """Nobody has the lane's turn."""
        self.holder.pop(lane, None)
        self.predecessor.pop(lane, None)

    def forget_lane(self, lane: LaneId) -> None:
        """The lane has been closed."""
        self.free_turn(lane)
        del self.lane_device[lane], self.lane_owner[lane]

    def seat(self, job: JobRecord, pid: int) -> list[Held]:
        """Give the job's process a seat; returns the memory that SETUP brings.  Raises BoardError, DeviceError."""
        assert job.device is not None and job.lane is not None
        device = self.devices[job.device]
        board = self.board(job.device, job.owner)
        device.lane_files(job.lane), device.store_fd(job.id)  # before anything is taken: may fail
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
        # The shim keeps duplicates before the job can use anything, so that no crash of ours loses memory in use.
        kept = [memory[0], Held(job.owner, job.seated.store_fd), *memory[1:3]]
        self.shims.keep(job.id, dict(zip(self.names(job), kept, strict=True)), pid)
        self.bound_run_ahead()
        return memory

    def tell_lane(self, job: JobRecord, seat: Seat, lane: LaneId) -> None:
        """From now on the job's process belongs there: the ledger first, which the next daemon believes."""
        self.ledger.move(job.id, lane)
        seat.set("lane", lane)

    def tell_bank(self, job: JobRecord, seat: Seat, bank: BankId) -> None:
        """From now on the job's process has this bank."""
        self.ledger.give_bank(job.id, bank)
        seat.set("bank", bank)

    def bound_run_ahead(self) -> None:
        """Jobs beside a service let the device have little of their work before it (``native/cuda/backlog.c``)."""
        seated = [job for job in self._jobs.live.values() if job.seated is not None]
        served = {job.device for job in seated if job.spec.service is not None}
        for job in seated:
            assert job.seated is not None
            bounded = job.seated.extents and job.spec.service is None and job.device in served
            bound = self._run_ahead_us if bounded else 0
            if job.seated.seat.get("ahead_us") != bound:
                job.seated.seat.set("ahead_us", bound)
                job.seated.board.notify(job.seated.seat)

    def tell_debugging(self, seat: Seat) -> None:
        """What a new process, and one of an earlier daemon, is to do for debugging."""
        seat.set("close_lane", self._close_lanes)

    def seated(self, job: JobRecord, board: Board, seat: Seat, pid: int, since_us: int) -> Seated:
        """What is known of a job that sits there."""
        assert job.device is not None
        layout = self.layouts[job.device]
        store = self.devices[job.device].store_fd(job.id)
        job.was_seated = True
        return Seated(board, seat, pid, store, since_us, layout.extents, layout.driver_serves(job))

    def setup_memory(self, job: JobRecord) -> list[Held]:
        """What SETUP brings: board, lane, bank, store; or the board alone.  Raises BoardError, DeviceError."""
        assert job.seated is not None and job.device is not None and job.lane is not None
        return [job.seated.board.held, *self.layouts[job.device].setup_memory(job, self.lane_owner[job.lane])]

    def lane_memory(self, lane: LaneId) -> Held:
        """Of a lane that is one file.  Raises DeviceError."""
        return Held(self.lane_owner[lane], single(self.devices[self.lane_device[lane]].lane_files(lane)))

    def bank_memory(self, device: DeviceId, bank: BankId) -> Held:
        """Of a bank that is one file.  Raises DeviceError."""
        return Held(self.devices[device].bank_owner(bank), single(self.devices[device].bank_files(bank)))

    def setup_packet(self, job: JobRecord) -> Packet:
        assert job.seated is not None and job.device is not None and job.lane is not None
        device = self.devices[job.device]
        numbers = (job.seated.seat.slot, device.window, job.lane, device.capacity, job.bank or 0)
        return Packet(PacketType.SETUP, 0, *numbers)

    def unseat(self, job: JobRecord) -> None:
        """The attached process is gone: its seat rests, its bank is free, and what was in its store is nobody's."""
        if job.seated is None or job.device is None:
            return
        device = self.devices[job.device]
        if not self._copies.under_way(job):  # else the bank is free as soon as the copy has ended
            self.free_bank(job)
        device.drop_store(job.id)
        if job.seated.pid == job.pid:  # the end of another process is not the end of the job
            job.out_of = job.seated.seat.get("out_of_memory")
        self.shims.drop(job.id, self.names(job))
        job.seated.board.free(job.seated.seat.slot)
        job.seated, job.bank, job.bank_sent, job.kept_banks = None, None, True, set()
        job.pieces, job.cuts, job.grant_waits, job.found, job.restored = {}, {}, None, False, False
        job.offloading = job.turn_due = False
        job.grow_seq = 0  # the next process counts anew
        job.traits = 0
        job.weights, job.weights_sent = set(), set()
        self.bound_run_ahead()
        if not self._anybody(job.device, job.owner):
            device.close_banks(job.owner)
        self._freed.tell()

    def free_bank(self, job: JobRecord) -> None:
        """Nothing in the bank that a job holds is needed.  Its shim keeps the descriptor: most often it comes back."""
        if job.bank is not None and job.device is not None:
            self.devices[job.device].free_bank(job.bank)
            job.bank, job.restored = None, False

    def at(self, board: Board, slot: int) -> JobRecord | None:
        """Who sits there at present."""
        for job in self._jobs.live.values():
            if job.seated is not None and job.seated.board is board and job.seated.seat.slot == slot:
                return job
        return None

    def names(self, job: JobRecord) -> list[str]:
        """Under which its shim keeps what belongs to its seat: board, store, lane, bank."""
        assert job.seated is not None and job.device is not None
        names = [f"{BOARD}:{job.device}:{job.seated.seat.slot}", f"{STORE}:{job.device}", *sorted(job.weights)]
        return [*names, *self.layouts[job.device].names(job)]

    def _anybody(self, device: DeviceId, owner: int) -> bool:
        """Whether a process of that owner has a seat on the device."""
        return any(
            job.seated is not None and (job.device, job.owner) == (device, owner) for job in self._jobs.live.values()
        )

    def board(self, device: DeviceId, owner: int) -> Board:
        boards = self.boards(device, owner)
        if not boards:
            boards.append(Board.create(f"carpool-{device}-board-{owner}", owner, self.layouts[device].kind))
        return boards[0]

    def boards(self, device: DeviceId, owner: int) -> list[Board]:
        return self._boards.setdefault((device, owner), [])


def whole_of_further(job: JobRecord) -> Whole:
    """Of a process beside the seated one: where nobody else is on the job's devices there is nothing to share out."""
    return Whole.ALL if job.submitted_exclusive else Whole.SHARE
