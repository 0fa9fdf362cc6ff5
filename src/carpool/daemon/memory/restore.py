"""Restores jobs whose memory comes in extents: it is made, sent, and filled with the content of their stores.

Not yet run on a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from carpool.core.model import JobId
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.memory.bank_holders import is_out
from carpool.daemon.memory.copies import Copied, StoreCopies
from carpool.daemon.memory.extents import Supply
from carpool.daemon.system.log_limit import caused_by
from carpool.devices.base import DeviceError

log = logging.getLogger(__name__)


class Sent(Protocol):
    """A queue of messages to a job: its channel, or its shim's session."""

    def quiet(self, job: JobId) -> bool:
        """Return whether all messages have been sent."""
        ...


class RestoreSender:
    """Makes and restores memory; it is ready only when ``lines`` and ``shims`` have sent everything."""

    def __init__(self, supply: Supply, copies: StoreCopies, lines: Sent, shims: Sent) -> None:
        self._supply = supply
        self._copies = copies
        self._lines = lines
        self._shims = shims
        self._failed: set[JobId] = set()  # jobs whose failure has been logged

    def lowered(self, job: JobRecord) -> None:
        """Trim the bank of a job whose grant has been lowered."""
        if not self._copies.under_way(job):
            self._supply.trim_bank(job)

    def obstacle(self, job: JobRecord, *, with_bank: bool, again: Callable[[JobRecord], None]) -> str | None:
        """Explain why the job's grant cannot take effect yet, and do what is possible about that; None: it can.

        If the job's memory is now on its way back, ``again`` is called when it has arrived.
        """
        if job.attached.whole:
            return None
        if job.offloading or self._copies.under_way(job):
            return "its memory is being copied"
        try:
            self._supply.make(job, with_bank=with_bank)
            told = self._supply.tell(job)
        except (DeviceError, OSError) as error:
            return str(error)
        if with_bank and is_out(job) and not self._restored(job, again):
            return "its memory is being restored"
        if not told:
            return "it has not released memory that it had before"
        return None if self._all_read(job.id) else "its process does not read its messages"

    def _all_read(self, job: JobId) -> bool:
        return self._lines.quiet(job) and self._shims.quiet(job)

    def settle(self, job: JobRecord) -> None:
        """Mark the job as restored, now that its limits cover what has come back."""
        if job.restored and job.seated is not None and job.bank is not None:
            job.restored = False
            job.seated.seat.set("stored", 0)
            job.seated.seat.set("offloaded", 0)

    def _restored(self, job: JobRecord, again: Callable[[JobRecord], None]) -> bool:
        """Return whether the bank has the content of the store; if not, begin to copy it."""
        if not job.restored and job.attached.seat.get("stored"):
            self._copies.back(job, lambda job, copied: self._copied(job, copied, again))
            return False
        job.restored = True
        return True

    def _copied(self, job: JobRecord, copied: Copied, again: Callable[[JobRecord], None]) -> None:
        if copied.error is not None:  # the waiting grant tries again
            if job.id not in self._failed:
                text = "the memory of job %d cannot be restored now: %s"
                log.error(text, job.id, copied.error, extra=caused_by(job.owner))
            self._failed.add(job.id)
            return
        self._failed.discard(job.id)
        seat = job.attached.seat
        seat.set("in_bytes", seat.get("in_bytes") + copied.size)
        seat.set("in_us", seat.get("in_us") + copied.took_us)
        seat.set("resume_us", copied.took_us)
        job.restored = True
        again(job)
