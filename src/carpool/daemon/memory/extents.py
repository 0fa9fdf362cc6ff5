"""The memory of jobs whose device hands it out in extents: made for their grants, sent to them, and cut off again.

A job has always been sent the beginning of its lane and of its bank: whenever one of them is cut, every job that has
the cut part is told (CUT), and releases that part whether it has its turn or not.  Limits have been lowered before, so
nothing in use is cut (a job would keep it, and answer when its turn has ended).  The memory is free when all have
answered.

A job that has not answered a CUT is sent no further extent of the same lane or bank.  So its shim never keeps other
memory than the job has mapped, even if the daemon dies in between.

Not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from carpool.core.model import DeviceId, JobId, LaneId, MemoryClass
from carpool.daemon.jobs.seat_table import OwnedFd
from carpool.daemon.jobs.table import JobRecord, JobTable, Pieces
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.memory.bank_holders import BankHolders, is_out
from carpool.daemon.seats.allocator import SeatAllocator
from carpool.daemon.seats.kept_fds import extent_names, memory_name
from carpool.devices.base import BankId, DeviceBackend, DeviceError, Extent, as_extents
from carpool.protocol.seat import Packet, PacketType

P, E = MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL
#: Numbers of the memory classes in packets; the packets that name the bank or lane.
_NUMBERS = {P: 0, E: 1}
_PACKETS = {P: PacketType.BANK, E: PacketType.LANE}
_CLASSES = (P, E)


class Supply:
    """Supplies jobs with extents.  ``send`` is that of the job channels; ``watchlist`` gets jobs that may not answer.

    Also handles banks that a device cuts by itself.
    """

    def __init__(
        self,
        jobs: JobTable,
        seating: SeatAllocator,
        banking: BankHolders,
        send: Callable[[JobId, Packet, Sequence[OwnedFd]], None],
        watchlist: Watchlist,
    ) -> None:
        self._jobs = jobs
        self._seating = seating
        self._banking = banking
        self._send = send
        self._watchlist = watchlist
        for name, layout in seating.layouts.items():
            layout.hear_bank_cuts(partial(self.bank_was_cut, name))

    def make(self, job: JobRecord, *, with_bank: bool) -> None:
        """Make the memory of the job's grant.  Raises DeviceError, OSError if it is unavailable at present."""
        device = self._device(job)
        assert job.lane is not None
        if device.lane_size(job.lane) < job.granted.ephemeral:
            device.resize_lane(job.lane, job.granted.ephemeral)
        if with_bank:
            self._banking.give(job)
            assert job.bank is not None
            device.grow_bank(job.bank, _needed(job))
            self.trim_bank(job)
            _leave_to_driver(device, _unmade(job))

    def tell(self, job: JobRecord) -> bool:
        """Send the job the parts of its lane and its bank that it does not have.

        Return False if the job has to read or answer something first.
        """
        assert job.lane is not None
        device = self._device(job)
        if job.adopted_unreported and not self._begin_again(job):
            return False
        told = self._tell(job, E, job.lane, device.lane_files(job.lane))
        if job.bank is not None:
            told = self._tell(job, P, job.bank, device.bank_files(job.bank)) and told
        return told

    def trim_bank(self, job: JobRecord) -> None:
        """Cut a bank to what the job that holds it needs; no copy to or from the bank may run."""
        if job.bank is not None and job.seated is not None:
            used = 0 if is_out(job) else job.seated.seat.get("p_used")
            self._device(job).cut_bank(job.bank, max(used, _needed(job)))
            self.bank_was_cut(self._device(job).id, job.bank)

    def bank_was_cut(self, device: DeviceId, bank: BankId) -> None:
        """Send a CUT to every job that has more of the bank."""
        self._cut(P, bank, sum(file.size for file in self._seating.devices[device].bank_files(bank)), device)

    def lane_was_cut(self, lane: LaneId, size: int) -> None:
        """Handle that a lane has been cut to ``size`` bytes."""
        self._cut(E, lane, size, self._seating.lane_device[lane])

    def answered(self, job: JobRecord, packet: Packet) -> None:
        """Handle CUT_DONE."""
        if packet.b < len(_CLASSES):
            job.cuts.pop((_CLASSES[packet.b], packet.a, packet.c), None)

    def returning(self, device: DeviceId) -> bool:
        """Return whether a job of a device has not yet released what has been cut."""
        return any(job.cuts for job in self._jobs.live.values() if job.device == device)

    def made(self, device: DeviceId) -> int:
        """Return the bytes of a device that jobs have made themselves, of the parts of grants beside their buffers."""
        jobs = (job for job in self._jobs.live.values() if job.device == device and job.seated is not None)
        return sum(min(job.attached.seat.get("made"), _beside_buffer(job)) for job in jobs if job.attached.extents)

    def _device(self, job: JobRecord) -> DeviceBackend:
        assert job.device is not None
        return self._seating.devices[job.device]

    def _begin_again(self, job: JobRecord) -> bool:
        """Send everything again that an earlier daemon may not have sent, after a CUT of what was not kept.

        A job without its turn first releases everything, a job with its turn what its limits do not cover.  Return
        False if the job has not read its SETUP yet.
        """
        if not job.attached.seat.get("pid"):
            return False
        for kind, pieces in job.pieces.items():
            if job.attached.seat.get("turn"):
                self._send_cut(job, kind, pieces.number, pieces.end)
            else:
                self._send(job.id, Packet(_PACKETS[kind], a=pieces.number), [])
                self._send_cut(job, kind, pieces.number, 0)
        job.adopted_unreported = False
        return True

    def _tell(self, job: JobRecord, kind: MemoryClass, number: int, files: Sequence[Extent]) -> bool:
        if job.pieces[kind].number != number:
            self._name(job, kind, number)
        pieces = job.pieces[kind]
        if pieces.sent < len(files) and any(cut[:2] == (kind, number) for cut in job.cuts):
            return False
        self._keep(job, kind, files)  # the shim first: memory that the job uses must outlive the daemon
        offset = sum(pieces.sizes[: pieces.sent])
        for file in files[pieces.sent :]:
            extent = Packet(PacketType.EXTENT, a=number, b=_NUMBERS[kind], c=offset, d=file.size)
            self._send(job.id, extent, [self._held(job, kind, number, file)])
            offset += file.size
        if pieces.sent < len(files):
            pieces.sent = len(files)
            self._ring(job)
        return True

    def _keep(self, job: JobRecord, kind: MemoryClass, files: Sequence[Extent]) -> None:
        sizes, number = job.pieces[kind].sizes, job.pieces[kind].number
        more = files[len(sizes) :]
        sizes += [file.size for file in more]
        names = self._names(job, kind)[len(files) - len(more) :]
        self._seating.shims.keep(
            job.id,
            {name: self._held(job, kind, number, file) for name, file in zip(names, more, strict=True)},
            job.attached.pid,
        )

    def _held(self, job: JobRecord, kind: MemoryClass, number: int, file: Extent) -> OwnedFd:
        """Return an extent of a lane or bank of the job's device, with its owner."""
        owner = self._device(job).bank_owner(number) if kind is P else self._seating.lane_owner[number]
        return OwnedFd(owner, file.fd)

    def _names(self, job: JobRecord, kind: MemoryClass) -> list[str]:
        pieces = job.pieces[kind]
        return extent_names(memory_name(kind, self._device(job).id, pieces.number), pieces.sizes)

    def _name(self, job: JobRecord, kind: MemoryClass, number: int) -> None:
        """Give the job another lane or bank: it releases all extents of the old one."""
        tell = self._seating.tell_bank if kind is P else self._seating.tell_lane
        tell(job, job.attached.seat, number)  # before the packet: a job whose lane or bank differs waits for the packet
        self._send(job.id, Packet(_PACKETS[kind], a=number), [])
        self._seating.shims.drop(job.id, self._names(job, kind))
        job.pieces[kind] = Pieces(number)
        self._ring(job)

    def _cut(self, kind: MemoryClass, number: int, end: int, device: DeviceId) -> None:
        for job in self._jobs.live.values():
            pieces = job.pieces.get(kind)
            if job.device == device and pieces is not None and pieces.number == number and pieces.end > end:
                self._cut_job(job, kind, pieces, end)

    def _cut_job(self, job: JobRecord, kind: MemoryClass, pieces: Pieces, end: int) -> None:
        before = self._names(job, kind)
        while pieces.end > end:
            pieces.sizes.pop()
        pieces.sent = min(pieces.sent, len(pieces.sizes))
        if not job.adopted_unreported:  # otherwise the job is told with everything else
            self._send_cut(job, kind, pieces.number, pieces.end)
        self._seating.shims.drop(job.id, before[len(pieces.sizes) :])

    def _send_cut(self, job: JobRecord, kind: MemoryClass, number: int, end: int) -> None:
        job.cuts.setdefault((kind, number, end), 0)  # asking again gives the job no more time
        self._send(job.id, Packet(PacketType.CUT, a=number, b=_NUMBERS[kind], c=end), [])
        self._ring(job)
        self._watchlist.watch(job)

    def _ring(self, job: JobRecord) -> None:
        """Ring the doorbell, so that the job reads its channel even when it is off its device."""
        job.attached.notify()


def _needed(job: JobRecord) -> int:
    """Return the bytes needed in the job's bank: what is granted, or what is to come back from the store.

    What the job makes itself (``handles``) lies in no bank.
    """
    seat = job.attached.seat
    return max(job.granted.persistent - seat.get("handles"), seat.get("stored") if is_out(job) else 0, 0)


def _beside_buffer(job: JobRecord) -> int:
    """Return the bytes of the job's persistent grant for which it has been sent no extents."""
    return max(0, job.granted.persistent - job.pieces[P].end)


def _unmade(job: JobRecord) -> int:
    """Return the bytes of the job's grant that the job is going to make itself."""
    words = job.attached.seat.snapshot()
    return max(0, min(words.handles, job.granted.persistent) - words.made)


def _leave_to_driver(device: DeviceBackend, size: int) -> None:
    """Make sure that a job can make ``size`` bytes itself.  Raises DeviceError if the driver has not got them now."""
    if size == 0 or (extents := as_extents(device)).has_room(size):
        return
    extents.give_way()
    if not extents.has_room(size):
        raise DeviceError("the driver has not got the memory yet")
