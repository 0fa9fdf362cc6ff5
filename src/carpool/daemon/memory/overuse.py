"""Memory beyond what the core knows of: pages that free banks keep, and pages that jobs take beyond their grants.

libcarpool keeps to the limits in its seat; a program that speaks the protocol itself may write to all of its memory
files.  The kernel counts the pages of each file, so no claim of a job is trusted.  If the jobs of a user have more than
they were granted, look after look, these jobs are killed: the holder of a device buffer, all jobs of a lane, the
workers that have a set of weights.  All of them belong to one user.  A buffer that no job holds is given up instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from carpool.core.model import DeviceId
from carpool.daemon.jobs.killing import Signaller, kill
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.memory.weights import WeightFiles
from carpool.daemon.system.log_limit import caused_by
from carpool.devices import memfd
from carpool.devices.base import BankId, DeviceBackend, DeviceError, PagedDevice, in_pages
from carpool.protocol.units import format_size

log = logging.getLogger(__name__)
RECLAIM_S = 0.1
RETRY_S = 1.0
INTERVAL_S = 1.0
#: How many looks in a row must find a user's jobs beyond their grants.
LOOKS = 3
#: All jobs of a user may have one part in this many of a device beyond their grants.
TOLERANCE = 32
_User = tuple[DeviceId, int]


class Reclaim:
    """Looks again and again, because jobs fill the banks that they are given only little by little.

    ``usable``: bytes of a device that jobs may have together at present.
    """

    def __init__(self, devices: Mapping[DeviceId, DeviceBackend], usable: Callable[[DeviceId], int]) -> None:
        self._devices = devices
        self._usable = usable

    async def run(self) -> None:
        """Empty free banks, again and again."""
        while True:
            await asyncio.sleep(RECLAIM_S)
            for device in self._devices.values():
                try:
                    await self.empty(device)
                except (DeviceError, OSError) as error:  # no descriptors left, for example: tried again
                    log.error("cannot empty the banks of %s: %s", device.id, error)
                    await asyncio.sleep(RETRY_S)

    async def empty(self, device: DeviceBackend) -> None:
        """Free pages, in a thread, until the device has no more than it should or no free bank has any."""
        while (work := device.surplus(self._usable(device.id))) is not None:
            await asyncio.to_thread(work)


@dataclass(frozen=True, slots=True)
class _Excess:
    """A file with too many pages: its owner, and the jobs that may have made them."""

    name: str
    owner: int
    size: int
    jobs: Sequence[JobRecord]
    give_up: Callable[[], None] | None = None  # called if there is no such job


class OveruseWatch:
    """Looks once a second, with one system call for each lane and buffer; turns are not affected."""

    def __init__(
        self,
        jobs: JobTable,
        devices: Mapping[DeviceId, DeviceBackend],
        weights: WeightFiles,
        processes: Signaller,
    ) -> None:
        self._jobs = jobs
        self._devices = [device for device in devices.values() if in_pages(device)]
        self._weights = weights
        self._processes = processes
        self._found: dict[_User, int] = {}  # looks in a row

    async def run(self) -> None:
        """Look for ever, if pages can be counted."""
        if self._devices and not memfd.small_pages_only():
            log.warning("shared memory has huge pages here: what jobs take beyond their grants is not noticed")
            return
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.look()

    def look(self) -> None:
        """Look once.  Findings of earlier looks count if this look finds the same user."""
        before, self._found = self._found, {}
        for device in self._devices:
            for owner, excesses in self._by_owner(device).items():
                if sum(excess.size for excess in excesses) > device.capacity // TOLERANCE:
                    looks = self._found[device.id, owner] = before.get((device.id, owner), 0) + 1
                    if looks >= LOOKS:
                        self._end(device, excesses)

    def _end(self, device: PagedDevice, excesses: Sequence[_Excess]) -> None:
        for excess in excesses:
            why = f"{excess.name} of {device.id} holds {format_size(excess.size)} more than was granted"
            for job in excess.jobs:
                if job.fault is None:
                    kill(job, "overuse", why, self._processes)
            if not excess.jobs and excess.give_up is not None:
                log.error("%s, and no job has it: it is given up", why, extra=caused_by(excess.owner))
                excess.give_up()

    def _by_owner(self, device: PagedDevice) -> dict[int, list[_Excess]]:
        found: dict[int, list[_Excess]] = {}
        for excess in self._excesses(device):
            found.setdefault(excess.owner, []).append(excess)
        return found

    def _excesses(self, device: PagedDevice) -> Iterator[_Excess]:
        seated = self._seated(device)
        over = device.overuse({job.bank: job.granted.persistent for job in seated if job.bank is not None})
        for lane, size in over.lanes.items():
            if jobs := [job for job in seated if job.lane == lane]:
                yield _Excess(f"lane {lane}", jobs[0].owner, size, jobs)
        for bank, size in over.banks.items():
            yield _excess_of_bank(device, bank, size, seated)
        for bank, size in over.weights.items():
            yield self._excess_of_weights(device, bank, size, seated)

    def _seated(self, device: PagedDevice) -> list[JobRecord]:
        return [job for job in self._jobs.live.values() if job.seated is not None and job.device == device.id]

    def _excess_of_weights(self, device: PagedDevice, bank: BankId, size: int, seated: list[JobRecord]) -> _Excess:
        files = {file.name for key, file in self._weights.table.items() if key[0] == device.id and file.bank == bank}
        give_up = None if files else partial(device.weights.abandon, bank)
        jobs = [job for job in seated if files & job.weights]
        return _Excess(f"memory {bank} for weights", device.weights.owner(bank), size, jobs, give_up)


def _excess_of_bank(device: PagedDevice, bank: BankId, size: int, seated: list[JobRecord]) -> _Excess:
    jobs, give_up = [job for job in seated if job.bank == bank], partial(device.abandon_bank, bank)
    return _Excess(f"device buffer {bank}", device.bank_owner(bank), size, jobs, give_up)
