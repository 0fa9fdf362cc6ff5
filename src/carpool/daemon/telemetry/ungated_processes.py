"""Jobs' processes in samples of the devices: their busy times, and those that use a GPU without Carpool.

The driver lists processes in which no part of Carpool is loaded.  Such processes are statically linked, or were forked
in a way that libcarpool does not see (`clone`, `forkpty`).  No turn holds them back, so the job has its device to
itself for as long as there is one.  A process may just be attaching when a sample is taken, so it counts only if two
samples in succession list it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from carpool.core.events import Event
from carpool.core.model import DeviceId, JobId, Micros
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.seats.record import tell_constraints
from carpool.daemon.system.processes import is_ending, state_of
from carpool.telemetry.samples import CapabilityLevel, Sample


class BusyTimes:
    """Adds up the busy times that samples report.  A job counts from its first sample on, an adopted job anew."""

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs

    def heard(self, _device: DeviceId, sample: Sample) -> None:
        """Add the busy times of a sample to the jobs."""
        for number, busy_us in _by_job(sample).items():
            if (job := self._jobs.live.get(number)) is not None:
                _add(job, busy_us)


def _by_job(sample: Sample) -> dict[JobId, Micros]:
    found: dict[JobId, Micros] = defaultdict(int)
    for process in sample.processes or ():
        if process.owner is not None and process.busy_us is not None:
            found[process.owner] += process.busy_us
    return found


def _add(job: JobRecord, busy_us: Micros) -> None:
    """Add busy time; the first sample only starts both figures, and a turn time that has begun anew restarts both."""
    if job.busy_us is None or job.usage.device_us < job.busy_since_us:
        job.busy_us, job.busy_since_us = 0, job.usage.device_us
    else:
        job.busy_us += busy_us


def computes(pid: int, owner: int) -> bool:
    """Return whether a process may still submit work: one that is ending may still have memory, but submits nothing."""
    return bool(state_of(pid, owner)) and not is_ending(pid)


@dataclass(eq=False)
class UngatedProcesses:
    """Finds ungated processes.  ``_ours``: the processes of a job in which a part of Carpool is loaded."""

    _jobs: JobTable
    _ours: Callable[[JobRecord], set[int]]
    _post: Callable[[Event], None]
    _computes: Callable[[int, int], bool] = computes
    _before: dict[DeviceId, dict[JobId, set[int]]] = field(default_factory=dict)

    def look(self, device: DeviceId, sample: Sample) -> None:
        """Update the ungated processes of the device's jobs; a sample that does not list processes changes nothing.

        On a host device a sample lists all processes of its jobs, and none of them can use the device without Carpool.
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
