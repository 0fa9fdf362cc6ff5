"""Samples of all devices of a kind in one pass, which a thread calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from carpool.core.model import DeviceId, JobId, Micros
from carpool.telemetry.activity import Activity, JobUse
from carpool.telemetry.gpus import GpuReaders
from carpool.telemetry.host import SECOND_LOOK, Host, usable_cores
from carpool.telemetry.process_trees import JobProcess, Trees
from carpool.telemetry.samples import CARPOOL, ProcessMemory, Sample, Unavailable, Unmeasurable
from carpool.telemetry.unmanaged import Ownership, with_unmanaged

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
        ...

    def close(self) -> None: ...


class HostReader:
    """Measures all host devices in one pass: the machine, and the processes of their jobs."""

    def __init__(self, clock: Clock, host: Host | None = None, trees: Trees | None = None, cores: int = 0) -> None:
        self._clock = clock
        self._host = Host() if host is None else host
        self._trees = Trees() if trees is None else trees
        self._cores = cores or usable_cores()
        self._activities: dict[DeviceId, Activity] = {}

    def read(self, targets: Sequence[Target], roots: Roots) -> Found:
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
        return {target.device: self._one(target, roots) for target in targets}

    def close(self) -> None:
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
