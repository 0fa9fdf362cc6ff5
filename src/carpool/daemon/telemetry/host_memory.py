"""Host memory for the core: how much is left for jobs, and how much the processes of each job use."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from carpool.core.events import HostMeasured
from carpool.core.model import MIB, DeviceId, JobId, Micros
from carpool.daemon.cgroups.hierarchies import MemoryLeft, hierarchies_here, memory_left
from carpool.daemon.jobs.table import JobTable
from carpool.devices.base import DeviceBackend
from carpool.telemetry.host import usable_cores
from carpool.telemetry.process_trees import JobProcess, Trees

log = logging.getLogger(__name__)
INTERVAL_S = 1.0
#: More often for a while after a job has started: whether that job computes decides which others may start.
SOON_S, SOON_LOOKS = 0.25, 20
#: The reserve: a sixteenth of the machine's memory, but no more than this.
RESERVE_PART, LARGEST_RESERVE = 16, 8 << 30
#: Reported sizes are rounded, so that not every look reports a change.
FREE_STEP, JOB_STEP = 64 * MIB, 8 * MIB


class HostMemory:
    """Measures host memory for the core.  ``left``: the memory that this process and those below it may use."""

    def __init__(
        self,
        jobs: JobTable,
        devices: Mapping[DeviceId, DeviceBackend],
        post: Callable[[HostMeasured], None],
        left: Callable[[], MemoryLeft] | None = None,
        cores: int | None = None,
    ) -> None:
        self._jobs = jobs
        self._devices = [device for device in devices.values() if device.kind == "host"]
        self._post = post
        self._left = left or (lambda: memory_left(hierarchies_here()))
        self._cores = cores or usable_cores()
        self._trees = Trees()
        self._busy: dict[JobId, Micros] = {}  # processor time of each job, at the last look
        self._idle: frozenset[JobId] = frozenset()
        self._told: dict[JobId, int] = {}
        self._told_free: int | None = None
        self._soon = 0  # looks that are still to follow at the shorter interval

    async def run(self) -> None:
        """Measure again and again for as long as the daemon runs."""
        while True:
            await asyncio.sleep(SOON_S if self._soon else INTERVAL_S)
            self._soon = max(0, self._soon - 1)
            await self.look()

    async def look(self) -> None:
        """Measure once; a failure is logged and changes nothing."""
        roots = {job.pid: job.id for job in self._jobs.live.values() if job.pid is not None}
        try:
            left, processes = await asyncio.to_thread(lambda: (self._left(), self._trees.look(roots)))
        except (OSError, ValueError, KeyError) as error:
            log.error("cannot measure the machine's memory: %s", error)
            return
        self._tell(left, processes, set(roots.values()))

    def _tell(self, left: MemoryLeft, processes: Collection[JobProcess], jobs: set[JobId]) -> None:
        used, busy = dict.fromkeys(jobs, 0), dict.fromkeys(jobs, 0)
        for process in processes:
            used[process.owner] += process.private_bytes
            busy[process.owner] += process.all_us
        self._note(used)
        idle = tuple(sorted(job for job in jobs if self._is_idle(job, busy[job])))
        if jobs - self._busy.keys():
            self._soon = SOON_LOOKS
        self._busy = busy
        self._post_new(self._free(left), {job: -(-size // JOB_STEP) * JOB_STEP for job, size in used.items()}, idle)

    def _note(self, used: Mapping[JobId, int]) -> None:
        for job, size in used.items():
            if job in self._jobs.live:
                self._jobs.live[job].scratch_bytes = size

    def _is_idle(self, number: JobId, busy_us: Micros) -> bool:
        """Return whether a job has no seat and has used no processor time since the last look."""
        job = self._jobs.live.get(number)
        return job is not None and job.seated is None and self._busy.get(number) == busy_us

    def _post_new(self, free: int, used: dict[JobId, int], idle: tuple[JobId, ...]) -> None:
        changed = {job: size for job, size in used.items() if self._told.get(job) != size}
        newly_idle = tuple(job for job in idle if job not in self._idle)
        self._idle = frozenset(idle)
        if changed or newly_idle or free != self._told_free:
            self._told, self._told_free = used, free
            self._post(HostMeasured(free, self._cores, changed, newly_idle))

    def _free(self, left: MemoryLeft) -> int:
        """Return the bytes beyond the reserve and beyond memory that host devices have promised but not yet made."""
        reserve = min(left.total // RESERVE_PART, LARGEST_RESERVE)
        promised = sum(max(0, self._granted(device.id) - device.used_bytes()) for device in self._devices)
        return (left.available - reserve - promised) // FREE_STEP * FREE_STEP

    def _granted(self, device: DeviceId) -> int:
        """Return the bytes granted on a device.  A lane counts once, because its jobs use it in turns."""
        lanes: dict[object, int] = defaultdict(int)
        here = [job for job in self._jobs.live.values() if job.device == device]
        for job in here:
            lanes[job.lane] = max(lanes[job.lane], job.granted.ephemeral)
        return sum(lanes.values()) + sum(job.granted.persistent for job in here)
