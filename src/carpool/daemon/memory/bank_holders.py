"""The jobs that hold banks.

A job that is on the device holds one bank alone.  A job whose memory is in its store holds none, and gets one before
its next turn: its seat names the bank, and a packet brings the descriptor if the job has mapped another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from carpool.core.model import JobId
from carpool.daemon.jobs.seat_table import OwnedFd
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.seats.allocator import SeatAllocator
from carpool.daemon.seats.kept_fds import BANK
from carpool.devices.base import BankId
from carpool.protocol.seat import Packet, PacketType


class BankHolders:
    """Gives banks to jobs.  ``send`` is that of the job channels."""

    def __init__(self, seating: SeatAllocator, send: Callable[[JobId, Packet, Sequence[OwnedFd]], None]) -> None:
        self._seating = seating
        self._send = send

    def give(self, job: JobRecord) -> None:
        """Give a bank to a job that is to come back; does nothing if it holds one.  Raises DeviceError, OSError."""
        if job.seated is None or job.bank is not None or job.device is None:
            return
        words, last = job.seated.seat.snapshot(), self._seating.ledger.of(job.id).bank
        bank = self._seating.devices[job.device].take_bank(job.owner, words.stored, last)
        job.bank, job.bank_seq = bank, words.passed_seq
        try:
            if (bank != last or not job.bank_sent) and not job.seated.extents:
                self._tell(job, bank)
        except Exception:
            self._seating.free_bank(job)
            raise

    def adopt(self, job: JobRecord) -> None:
        """Adopt a job's bank: on the device, the one that the job was told of last; with memory in the store, none."""
        if job.seated is None or job.device is None:
            return
        if is_out(job):
            job.bank_sent = False  # the earlier daemon may have died before it sent the packet
            return
        if job.seated.whole:
            return
        bank = self._seating.ledger.of(job.id).bank
        job.bank = bank if bank in job.kept_banks else max(job.kept_banks)  # the earlier daemon died before sending it
        self._seating.devices[job.device].hold_bank(job.bank)

    def _tell(self, job: JobRecord, bank: BankId) -> None:
        assert job.device is not None
        job.bank_sent = False
        memory = self._seating.bank_memory(job.device, bank)
        self._seating.shims.keep(job.id, {f"{BANK}:{job.device}:{bank}": memory}, job.attached.pid)
        self._seating.tell_bank(job, job.attached.seat, bank)  # first: where they differ, the job waits for the packet
        self._send(job.id, Packet(PacketType.BANK, a=bank), [memory])
        job.attached.notify()
        job.bank_sent = True
        others = job.kept_banks - {bank}
        self._seating.shims.drop(job.id, [f"{BANK}:{job.device}:{other}" for other in sorted(others)])
        job.kept_banks = {bank}


def is_out(job: JobRecord) -> bool:
    """Return whether all of a seated job's memory is in its store; with a turn it is about to come back, or is back."""
    seat = job.seated.seat if job.seated is not None else None
    return seat is not None and seat.get("offloaded") == 1 and seat.get("turn") == 0
