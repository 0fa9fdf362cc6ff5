"""Who holds which bank.

A job that is on the device holds one bank alone; one that is in its store holds none, and gets one before its next
turn: its seat says which, and a packet brings the descriptor if it is not the one that the job has mapped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from carpool.core.model import JobId
from carpool.daemon.jobs.held import Held
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.seats.allocator import Seating
from carpool.daemon.seats.kept_fds import BANK
from carpool.devices.base import BankId
from carpool.protocol.seat import Packet, PacketType


class Banking:
    """``send`` is that of the job channels."""

    def __init__(self, seating: Seating, send: Callable[[JobId, Packet, Sequence[Held]], None]) -> None:
        self._seating = seating
        self._send = send

    def give(self, job: JobRecord) -> None:
        """A bank for a job that is to come back; nothing if it holds one.  Raises DeviceError, OSError."""
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
        """A job found on the device holds the bank that it was told of last; one found in its store none."""
        if job.seated is None or job.device is None:
            return
        if is_out(job):
            job.bank_sent = False  # the earlier daemon may have died before it sent the packet
            return
        if job.seated.whole:
            return
        bank = self._seating.ledger.of(job.id).bank
        job.bank = bank if bank in job.kept_banks else max(job.kept_banks)  # the earlier daemon died before it sent it
        self._seating.devices[job.device].hold_bank(job.bank)

    def _tell(self, job: JobRecord, bank: BankId) -> None:
        assert job.seated is not None and job.device is not None
        job.bank_sent = False
        memory = self._seating.bank_memory(job.device, bank)
        self._seating.shims.keep(job.id, {f"{BANK}:{job.device}:{bank}": memory}, job.seated.pid)
        self._seating.tell_bank(job, job.seated.seat, bank)  # before the packet: the job waits for it where they differ
        self._send(job.id, Packet(PacketType.BANK, a=bank), [memory])
        job.seated.board.notify(job.seated.seat)
        job.bank_sent = True
        others = job.kept_banks - {bank}
        self._seating.shims.drop(job.id, [f"{BANK}:{job.device}:{other}" for other in sorted(others)])
        job.kept_banks = {bank}


def is_out(job: JobRecord) -> bool:
    """Whether all of a seated job's memory is in its store.  With a turn it is about to come back, or has."""
    seat = job.seated.seat if job.seated is not None else None
    return seat is not None and seat.get("offloaded") == 1 and seat.get("turn") == 0
