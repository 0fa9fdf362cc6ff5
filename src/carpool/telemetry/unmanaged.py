"""The owners of the processes on a device, and the device's unmanaged memory: in use, and not by grant.

Processes below a job or below the daemon are Carpool's.  Memory of jobs is unmanaged, too, unless it is by grant:
contexts, libraries, what a dying process still has.  The core promises none of it.  Recorded as ``foreign_bytes``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from carpool.core.model import JobId
from carpool.telemetry.sample import Sample

#: Of ``/proc/self/ns/pid`` where process numbers are those of the machine: a constant of Linux.
INITIAL_PID_NAMESPACE = 0xEFFFFFFC
ELSEWHERE = "the processes are in another container: which of them are Carpool's is not known"

Look = Callable[[int], tuple[int, int] | None]


def look(pid: int) -> tuple[int, int] | None:
    """Parent and start time of a process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return int(fields[1]), int(fields[19])


def sees_all_processes() -> bool:
    """False in a container with process numbers of its own: the driver's are others."""
    return Path("/proc/self/ns/pid").stat().st_ino == INITIAL_PID_NAMESPACE


class Ownership:
    """For one device.  Remembers the owner of each process: a dying process has no parent any more to be found by."""

    def __init__(self, look: Look = look, sees_all: bool | None = None) -> None:
        self._look = look
        self._sees_all = sees_all_processes() if sees_all is None else sees_all
        self._known: dict[int, tuple[int, JobId]] = {}  # start time and owner

    def attribute(self, sample: Sample, roots: Mapping[int, JobId]) -> Sample:
        """The sample with owners.  ``roots``: processes with everything below them, by owner."""
        if sample.processes is None:
            return sample
        found = {process.pid: self._owner(process.pid, roots) for process in sample.processes}
        self._known = {pid: known for pid, known in self._known.items() if pid in found}
        if not sample.processes and self._sees_all:
            return sample
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
    """Bytes of processes that are not Carpool's; what the driver does not tell counts as none."""
    return sum(process.used_bytes or 0 for process in sample.processes or () if process.owner is None)


def with_unmanaged(sample: Sample, granted: int, **more: Any) -> Sample:
    """The sample with its unmanaged memory: used bytes less ``granted``, those of lanes and device buffers.

    ``more``: further fields of the sample.
    """
    if sample.used_bytes is None:
        missing = {**more.pop("missing", sample.missing), "foreign_bytes": sample.missing.get("used_bytes", "")}
        return dataclasses.replace(sample, foreign_bytes=None, missing=missing, **more)
    return dataclasses.replace(sample, foreign_bytes=max(0, sample.used_bytes - granted), **more)
