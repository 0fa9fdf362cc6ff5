"""Processes of jobs that use a GPU beside Carpool: the driver's list names them, and nothing of ours is in them.

Statically linked programs, processes that were forked after PyTorch had been imported, and children of a forkserver:
no turn holds them back, so the job has its device to itself for as long as there is one.  It may just be attaching
when a sample is taken; so it has to be in two of them, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

from carpool.core.events import Event
from carpool.core.model import DeviceId, JobId
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.seats.sampler import tell_constraints
from carpool.daemon.system.process_state import state_of
from carpool.telemetry.sample import CapabilityLevel, Sample

_OVER = ("", "Z", "X")


def computes(pid: int, owner: int) -> bool:
    """A process that is ending may have its memory still, but submits nothing any more."""
    return state_of(pid, owner) not in _OVER


class UngatedProcesses:
    """``ours``: the processes of a job that something of Carpool is in, and speaks for."""

    def __init__(
        self,
        jobs: JobTable,
        ours: Callable[[JobRecord], set[int]],
        post: Callable[[Event], None],
        computes: Callable[[int, int], bool] = computes,
    ) -> None:
        self._jobs = jobs
        self._ours = ours
        self._post = post
        self._computes = computes
        self._before: dict[DeviceId, dict[JobId, set[int]]] = {}

    def look(self, device: DeviceId, sample: Sample) -> None:
        """A sample that does not say which processes use the device changes nothing.

        On a host device it lists all processes of the jobs there, and none can use the device without Carpool.
        """
        if sample.processes is None or sample.level is CapabilityLevel.HOST:
            return
        found = self._strangers(device, sample)
        before, self._before[device] = self._before.get(device, {}), found
        for job in tuple(self._jobs.live.values()):
            if job.device == device and not job.by_checkpoint:
                self._settle(job, found.get(job.id, set()) & before.get(job.id, set()))

    def _strangers(self, device: DeviceId, sample: Sample) -> dict[JobId, set[int]]:
        found: dict[JobId, set[int]] = {}
        for process in sample.processes or ():
            job = self._jobs.live.get(process.owner or 0)
            if job is None or job.by_checkpoint or job.device != device or process.pid in self._ours(job):
                continue
            if self._computes(process.pid, job.owner):
                found.setdefault(job.id, set()).add(process.pid)
        return found

    def _settle(self, job: JobRecord, strangers: set[int]) -> None:
        if job.ungated_pid not in strangers:
            job.ungated_pid = min(strangers, default=None)
        tell_constraints(job, self._post)
