"""Owners of the processes on a device, and the device's unmanaged memory, which is in use but not by grant.

Processes below a job or below the daemon are Carpool's.  Memory of jobs is also unmanaged unless it is by grant:
contexts, libraries, memory of a dying process.  The core promises none of it.  Recorded as ``foreign_bytes``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from carpool.core.model import JobId
from carpool.telemetry.samples import Sample

#: Inode of ``/proc/self/ns/pid`` in the machine's own PID namespace: a constant of Linux.
INITIAL_PID_NAMESPACE = 0xEFFFFFFC
ELSEWHERE = "the processes are in another container: which of them are Carpool's is not known"

Look = Callable[[int], tuple[int, int] | None]


def look(pid: int) -> tuple[int, int] | None:
    """Return the parent and start time of a process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return int(fields[1]), int(fields[19])


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
