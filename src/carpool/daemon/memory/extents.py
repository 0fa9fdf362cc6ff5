"""The memory of jobs whose device hands it out in extents: made for their grants, sent to them, cut off again.

What a job has been sent is the beginning of its lane and of its bank, and stays so: whenever one of them is cut, every
job that has the part is told (CUT), and lets go of it whether it has its turn or not.  Limits have been lowered before,
so nothing in use is cut (a job would keep it, and answer when its turn has ended).  The memory is free when all have
answered.

A job that has not answered a CUT is sent no further extent of the same lane or bank.  So what its shim keeps is never
another memory than what the job has mapped, also if we die in between.

Not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from carpool.core.model import DeviceId, JobId, LaneId, MemoryClass
from carpool.daemon.jobs.held import Held
from carpool.daemon.jobs.table import JobRecord, JobTable, Pieces
from carpool.daemon.jobs.watchlist import Watchlist
from carpool.daemon.memory.bank_holders import Banking, is_out
from carpool.daemon.seats.allocator import Seating
from carpool.daemon.seats.kept_fds import extent_names, memory_name
from carpool.devices.base import BankId, DeviceBackend, Extent
from carpool.protocol.seat import Packet, PacketType

P, E = MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL
#: Their numbers in packets; the word of the seat, and the packet, that name the lane or bank.
_NUMBERS = {P: 0, E: 1}
_PACKETS = {P: PacketType.BANK, E: PacketType.LANE}
_CLASSES = (P, E)


class Supply:
    """``send`` is that of the job channels; ``watchlist`` hears of jobs that may not answer.

    Hears of banks that a device cuts by itself.
    """

    def __init__(
        self,
        jobs: JobTable,
        seating: Seating,
        banking: Banking,
        send: Callable[[JobId, Packet, Sequence[Held]], None],
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
        """The memory of the job's grant.  Raises DeviceError, OSError: it cannot be had now."""
        device = self._device(job)
        assert job.lane is not None
        if device.lane_size(job.lane) < job.granted.ephemeral:
            device.resize_lane(job.lane, job.granted.ephemeral)
        if with_bank:
            self._banking.give(job)
            assert job.bank is not None
            device.grow_bank(job.bank, _needed(job))
            self.trim_bank(job)

    def tell(self, job: JobRecord) -> bool:
        """Send the job what it has not got of its lane and its bank.

        False: it has to read or answer something first.
        """
        assert job.seated is not None and job.lane is not None
        device = self._device(job)
        if job.found and not self._begin_again(job):
            return False
        told = self._tell(job, E, job.lane, device.lane_files(job.lane))
        if job.bank is not None:
            told = self._tell(job, P, job.bank, device.bank_files(job.bank)) and told
        return told

    def trim_bank(self, job: JobRecord) -> None:
        """A bank has no more than the job that holds it needs; nothing copies to or from it."""
        if job.bank is not None and job.seated is not None:
            used = 0 if is_out(job) else job.seated.seat.get("p_used")
            self._device(job).cut_bank(job.bank, max(used, _needed(job)))
            self.bank_was_cut(self._device(job).id, job.bank)

    def bank_was_cut(self, device: DeviceId, bank: BankId) -> None:
        """Tell everybody who has more of it."""
        self._cut(P, bank, sum(file.size for file in self._seating.devices[device].bank_files(bank)), device)

    def lane_was_cut(self, lane: LaneId, size: int) -> None:
        self._cut(E, lane, size, self._seating.lane_device[lane])

    def answered(self, job: JobRecord, packet: Packet) -> None:
        """CUT_DONE."""
        if packet.b < len(_CLASSES):
            job.cuts.pop((_CLASSES[packet.b], packet.a, packet.c), None)

    def _device(self, job: JobRecord) -> DeviceBackend:
        assert job.device is not None
        return self._seating.devices[job.device]

    def _begin_again(self, job: JobRecord) -> bool:
        """Whatever an earlier daemon could not send any more is sent again, after a CUT of what was not kept.

        A job without its turn lets go of everything first, one with its turn of what its limits do not cover.  False:
        it has not read its SETUP yet.
        """
        assert job.seated is not None
        if not job.seated.seat.get("pid"):
            return False
        for kind, pieces in job.pieces.items():
            if job.seated.seat.get("turn"):
                self._send_cut(job, kind, pieces.number, pieces.end)
            else:
                self._send(job.id, Packet(_PACKETS[kind], a=pieces.number), [])
                self._send_cut(job, kind, pieces.number, 0)
        job.found = False
        return True

    def _tell(self, job: JobRecord, kind: MemoryClass, number: int, files: Sequence[Extent]) -> bool:
        if job.pieces[kind].number != number:
            self._name(job, kind, number)
        pieces = job.pieces[kind]
        if pieces.sent < len(files) and any(cut[:2] == (kind, number) for cut in job.cuts):
            return False
        self._keep(job, kind, files)  # its shim first: whatever the job uses must not be lost with us
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
        assert job.seated is not None
        sizes, number = job.pieces[kind].sizes, job.pieces[kind].number
        more = files[len(sizes) :]
        sizes += [file.size for file in more]
        names = self._names(job, kind)[len(files) - len(more) :]
        self._seating.shims.keep(
            job.id,
            {name: self._held(job, kind, number, file) for name, file in zip(names, more, strict=True)},
            job.seated.pid,
        )

    def _held(self, job: JobRecord, kind: MemoryClass, number: int, file: Extent) -> Held:
        """A piece of a lane or bank of the job's device."""
        owner = self._device(job).bank_owner(number) if kind is P else self._seating.lane_owner[number]
        return Held(owner, file.fd)

    def _names(self, job: JobRecord, kind: MemoryClass) -> list[str]:
        pieces = job.pieces[kind]
        return extent_names(memory_name(kind, self._device(job).id, pieces.number), pieces.sizes)

    def _name(self, job: JobRecord, kind: MemoryClass, number: int) -> None:
        """Another lane or bank: the job lets go of all extents of the old one."""
        assert job.seated is not None
        tell = self._seating.tell_bank if kind is P else self._seating.tell_lane
        tell(job, job.seated.seat, number)  # before the packet: the job waits for it where they differ
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
        if not job.found:  # else it is told with everything else
            self._send_cut(job, kind, pieces.number, pieces.end)
        self._seating.shims.drop(job.id, before[len(pieces.sizes) :])

    def _send_cut(self, job: JobRecord, kind: MemoryClass, number: int, end: int) -> None:
        job.cuts.setdefault((kind, number, end), 0)  # asking again gives the job no more time
        self._send(job.id, Packet(PacketType.CUT, a=number, b=_NUMBERS[kind], c=end), [])
        self._ring(job)
        self._watchlist.watch(job)

    def _ring(self, job: JobRecord) -> None:
        """It reads its channel also when it is off its device."""
        assert job.seated is not None
        job.seated.board.notify(job.seated.seat)


def _needed(job: JobRecord) -> int:
    """Of its bank: what it has been granted, and what is to come back."""
    assert job.seated is not None
    return max(job.granted.persistent, job.seated.seat.get("stored") if is_out(job) else 0)
