"""Samples of all devices of a kind in one pass, which a thread calls.

Owners of the processes on a device, and the device's unmanaged memory, which is in use but not by grant.

Processes below a job or below the daemon are Carpool's.  Memory of jobs is also unmanaged unless it is by grant:
contexts, libraries, memory of a dying process.  The core promises none of it.  Recorded as ``foreign_bytes``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from carpool.core.model import DeviceId, JobId, Micros
from carpool.telemetry.activity import Activity, JobUse
from carpool.telemetry.gpus import GpuReaders
from carpool.telemetry.host import SECOND_LOOK, Host, usable_cores
from carpool.telemetry.process_trees import PARENT, START, JobProcess, Trees, stat_of
from carpool.telemetry.samples import CARPOOL, ProcessMemory, Sample, Unavailable, Unmeasurable

#: Inode of ``/proc/self/ns/pid`` in the machine's own PID namespace: a constant of Linux.
INITIAL_PID_NAMESPACE = 0xEFFFFFFC
ELSEWHERE = "the processes are in another container: which of them are Carpool's is not known"

Look = Callable[[int], tuple[int, int] | None]


def look(pid: int) -> tuple[int, int] | None:
    """Return the parent and start time of a process; None if it is gone."""
    fields = stat_of(pid)
    return None if fields is None else (int(fields[PARENT]), int(fields[START]))


def sees_all_processes() -> bool:
    """Whether this process sees the machine's own process numbers, which the driver uses; False in most containers."""
    return Path("/proc/self/ns/pid").stat().st_ino == INITIAL_PID_NAMESPACE


class Ownership:
    """Owners of the processes on one device.  Remembers owners, because a dying process no longer has its parent."""

    def __init__(self, look: Look = look, sees_all: bool | None = None) -> None:
        self._look = look
        self._sees_all = sees_all_processes() if sees_all is None else sees_all
        self._known: dict[int, tuple[int, JobId]] = {}  # start time and owner

    def attribute(self, sample: Sample, roots: Mapping[int, JobId]) -> Sample:
        """Return the sample with the owners of its processes.

        ``roots``: root processes, each with everything below it, and their owners.
        """
        if sample.processes is None:
            return sample
        found = {process.pid: self._owner(process.pid, roots) for process in sample.processes}
        self._known = {pid: known for pid, known in self._known.items() if pid in found}
        owned = tuple(dataclasses.replace(process, owner=found[process.pid]) for process in sample.processes)
        if not self._sees_all and all(process.owner is None for process in owned):
            return dataclasses.replace(sample, processes=None, missing={**sample.missing, "processes": ELSEWHERE})
        return dataclasses.replace(sample, processes=owned)

    def _owner(self, pid: int, roots: Mapping[int, JobId]) -> JobId | None:
        seen = self._look(pid)
        known = self._known.get(pid)
        owner = self._above(pid, roots)
        if owner is not None and seen is not None:
            self._known[pid] = (seen[1], owner)
        elif owner is None and known is not None and (seen is None or seen[1] == known[0]):
            owner = known[1]
        return owner

    def _above(self, pid: int, roots: Mapping[int, JobId]) -> JobId | None:
        at = pid
        while at not in roots:
            seen = self._look(at) if at > 0 else None
            if seen is None:
                return None
            at = seen[0]
        return roots[at]


def bytes_of_others(sample: Sample) -> int:
    """Return the bytes of processes that are not Carpool's; an unknown size counts as none."""
    return sum(process.used_bytes or 0 for process in sample.processes or () if process.owner is None)


def with_unmanaged(sample: Sample, granted: int, **more: Any) -> Sample:
    """Return the sample with its unmanaged memory: used bytes less ``granted``, the bytes of lanes and device buffers.

    ``more``: further fields of the sample.
    """
    if sample.used_bytes is None:
        missing = {**more.pop("missing", sample.missing), "foreign_bytes": sample.missing.get("used_bytes", "")}
        return dataclasses.replace(sample, foreign_bytes=None, missing=missing, **more)
    return dataclasses.replace(sample, foreign_bytes=max(0, sample.used_bytes - granted), **more)


Clock = Callable[[], Micros]
Roots = Mapping[int, JobId]  # root processes, each with everything below it, and their owners
Found = dict[DeviceId, Sample | Unmeasurable]


@dataclass(frozen=True, slots=True)
class Target:
    """A device to measure.

    ``used_bytes``: memory that exists behind its lanes and device buffers; ``uuid``: NVML's name of the device;
    ``uses``: its jobs at ``asked_us``.
    """

    device: DeviceId
    capacity: int
    used_bytes: int = 0
    uuid: str = ""
    uses: tuple[JobUse, ...] = ()
    asked_us: Micros | None = None


class Reader(Protocol):
    """Measures all devices of one kind in one pass, in a thread of its own."""

    def read(self, targets: Sequence[Target], roots: Roots) -> Found:
        """Return a sample of each target, or why there is none."""

    def close(self) -> None:
        """Release what the reader has opened."""


class HostReader:
    """Measures all host devices in one pass: the machine, and the processes of their jobs."""

    def __init__(self, clock: Clock, host: Host | None = None, trees: Trees | None = None, cores: int = 0) -> None:
        self._clock = clock
        self._host = Host() if host is None else host
        self._trees = Trees() if trees is None else trees
        self._cores = cores or usable_cores()
        self._activities: dict[DeviceId, Activity] = {}

    def read(self, targets: Sequence[Target], roots: Roots) -> Found:
        """Return a sample of each target, or why ``/proc`` cannot be read."""
        now = self._clock()
        try:
            self._host.look(now)
            processes = self._trees.look({pid: job for pid, job in roots.items() if job != CARPOOL})
        except OSError as error:
            return {target.device: Unavailable(f"cannot read /proc: {error.strerror}") for target in targets}
        by_job: dict[JobId, list[JobProcess]] = {}
        for process in processes:
            by_job.setdefault(process.owner, []).append(process)
        return {target.device: self._one(target, by_job, now) for target in targets}

    def close(self) -> None:
        """Do nothing: this reader has no resources."""

    def _one(self, target: Target, by_job: Mapping[JobId, list[JobProcess]], now: Micros) -> Sample:
        here = [process for use in target.uses for process in by_job.get(use.job, ())]
        activity = self._activities.setdefault(target.device, Activity())
        asked = now if target.asked_us is None else target.asked_us
        found: dict[str, Any] = dict(activity.between(target.uses, here, asked, self._cores) or {})
        if "sm_active_ppm" in found:
            found["jobs_busy_ppm"] = found["sm_active_ppm"]
        found["processes"] = tuple(
            ProcessMemory(each.pid, each.private_bytes, each.owner, activity.computed.get(each.pid)) for each in here
        )
        return self._host.sample(now, target.capacity, target.used_bytes, found)


class GpuReader:
    """Measures GPUs through NVML, and tells processes of jobs from others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gpus = GpuReaders()
        self._ownerships: dict[DeviceId, Ownership] = {}
        self._activities: dict[DeviceId, Activity] = {}

    def read(self, targets: Sequence[Target], roots: Roots) -> Found:
        """Return a sample of each target, or why NVML cannot measure it."""
        return {target.device: self._one(target, roots) for target in targets}

    def close(self) -> None:
        """Close NVML."""
        self._gpus.close()

    def _one(self, target: Target, roots: Roots) -> Sample | Unmeasurable:
        try:
            sample = self._gpus.sample(target.uuid, self._clock())
        except Unmeasurable as error:
            return error
        owned = self._ownerships.setdefault(target.device, Ownership()).attribute(sample, roots)
        return with_unmanaged(owned, target.used_bytes, **self._of_jobs(owned, target))

    def _of_jobs(self, sample: Sample, target: Target) -> dict[str, Any]:
        """Return what only seats tell about a GPU: bytes that Carpool moved, and time it computed for jobs."""
        activity = self._activities.setdefault(target.device, Activity())
        asked = sample.taken_us if target.asked_us is None else target.asked_us
        found = activity.between(target.uses, (), asked, 1)
        if found is None:
            return {"missing": {**sample.missing, "moved_bytes_per_s": SECOND_LOOK, "jobs_busy_ppm": SECOND_LOOK}}
        moved = {"moved_bytes_per_s": found["moved_bytes_per_s"]}
        if sample.busy_ppm is None:
            return {**moved, "missing": {**sample.missing, "jobs_busy_ppm": sample.missing.get("busy_ppm", "")}}
        return {**moved, "jobs_busy_ppm": min(sample.busy_ppm, activity.turns_ppm)}
