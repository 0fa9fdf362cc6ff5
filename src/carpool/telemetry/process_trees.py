"""The processes of jobs, their computing time and private memory, from one pass over ``/proc``.

A process belongs to the nearest root above it.  The parents of a process are read once per process number: a process of
no job does not become part of a job while the roots stay the same, so a machine full of other programs costs only a
listing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from carpool.core.model import JobId, Micros
from carpool.telemetry.nvml import Calls, NvmlUnsupported, Unanswered

PROC = Path("/proc")
TICK_US: Micros = 1_000_000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
#: Looks after which everything is read anew: a number may have been reused by another process between two looks.
FORGET_AFTER = 60
# Fields of /proc/PID/stat behind the name: parent, own times, times of children that were waited for, start.
PARENT, USER, SYSTEM, CHILD_USER, CHILD_SYSTEM, START = 1, 11, 12, 13, 14, 19


@dataclass(frozen=True, slots=True)
class JobProcess:
    """``own_us``: processor time of its threads; ``all_us``: the same plus that of children that have ended."""

    pid: int
    owner: JobId
    own_us: Micros
    all_us: Micros
    private_bytes: int  # resident memory that is neither file-backed nor shared: none of it is by grant


def stat_of(pid: int, proc: str = str(PROC)) -> list[bytes] | None:
    """Return the fields of ``/proc/PID/stat`` behind the name; None if the process is gone or may not be read."""
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as file:
            return file.read(4096).rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


class ProcessorTime(NamedTuple):
    """What a process had used at a moment.

    ``cpu_us``: processor time of its threads, and of its children that have ended; ``delay_us``: for how long its main
    thread could have run, and waited for a processor.
    """

    at_us: Micros
    cpu_us: Micros
    delay_us: Micros


def processor_time(pid: int, at_us: Micros, proc: Path = PROC) -> ProcessorTime | None:
    """Read the processor time of a process; None if it is gone or may not be read, or the kernel does not count."""
    fields = stat_of(pid, str(proc))
    try:
        with open(f"{proc}/{pid}/schedstat", "rb", buffering=0) as file:
            delay_ns = int(file.read(256).split()[1])
    except (OSError, IndexError):
        return None
    return None if fields is None else ProcessorTime(at_us, _spent(fields), delay_ns // 1000)


def _spent(fields: list[bytes]) -> Micros:
    return sum(int(fields[place]) for place in (USER, SYSTEM, CHILD_USER, CHILD_SYSTEM)) * TICK_US


class Trees:
    """Finds the processes below the roots of jobs, and remembers processes that belong to no job."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = str(proc)
        self._roots: dict[int, JobId] = {}
        self._owners: dict[int, tuple[int, JobId | None]] = {}  # by process: start time and owner
        self._looks = 0

    def look(self, roots: Mapping[int, JobId]) -> list[JobProcess]:
        """Return all processes at and below ``roots``, by process number.  Raises OSError if there is no ``/proc``."""
        self._begin(roots)
        present = set(map(int, filter(str.isdigit, os.listdir(self._proc))))  # noqa: PTH208 - names are enough
        for gone in self._owners.keys() - present:
            del self._owners[gone]
        owned = {pid for pid, (_, owner) in self._owners.items() if owner is not None}
        seen = {pid: stat_of(pid, self._proc) for pid in present - self._owners.keys() | owned}
        stats = {pid: fields for pid, fields in seen.items() if fields is not None}
        for pid, fields in stats.items():
            if self._owners.get(pid, (None, None))[0] != int(fields[START]):
                self._owners[pid] = (int(fields[START]), self._owner(pid, stats))
        return list(filter(None, (self._process(pid, fields) for pid, fields in sorted(stats.items()))))

    def _begin(self, roots: Mapping[int, JobId]) -> None:
        """Forget all owners if the roots have changed, or after `FORGET_AFTER` looks."""
        self._looks += 1
        if dict(roots) != self._roots or self._looks >= FORGET_AFTER:
            self._roots, self._owners, self._looks = dict(roots), {}, 0

    def _owner(self, pid: int, stats: Mapping[int, list[bytes]]) -> JobId | None:
        """Return the owner of the nearest root above a process; None if a parent is gone or belongs to no job."""
        seen: set[int] = set()
        while pid not in self._roots:
            if pid in seen or pid not in stats:
                return self._owners.get(pid, (0, None))[1]
            seen.add(pid)
            pid = int(stats[pid][PARENT])
        return self._roots[pid]

    def _process(self, pid: int, fields: list[bytes]) -> JobProcess | None:
        owner = self._owners[pid][1]
        if owner is None:
            return None
        private = self._private(pid)
        own = (int(fields[USER]) + int(fields[SYSTEM])) * TICK_US
        return JobProcess(pid, owner, own, _spent(fields), private)

    def _private(self, pid: int) -> int:
        """Return the bytes of resident pages without those of files and shared memory, which device memory is."""
        try:
            with open(f"{self._proc}/{pid}/statm", "rb", buffering=0) as file:
                fields = file.read(256).split()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return 0
        return max(0, int(fields[1]) - int(fields[2])) * PAGE if len(fields) > 2 else 0


PERCENT = 100


class BusyProcesses:
    """The busy times of one GPU's processes, from the driver's samples of multiprocessors in use, in percent."""

    def __init__(self) -> None:
        self._asked_us: Micros | None = None
        self._latest = 0  # the newest sample's time, in the driver's microseconds

    def since_last(self, calls: Calls, handle: Any, now: Micros) -> Mapping[int, Micros] | None:
        """Return the computing time of each process since the previous call; processes that are absent had none.

        None at the first call, and where the driver has no such samples (a part of a GPU, old drivers).
        """
        before, self._asked_us = self._asked_us, now
        try:
            samples = calls.must("nvmlDeviceGetProcessUtilization", handle, self._latest)
        except NvmlUnsupported:
            return None
        except Unanswered:  # also the answer when no process has computed
            samples = []
        self._latest = max([self._latest, *(sample.timeStamp for sample in samples)])
        return None if before is None else _times(samples, now - before)


def _times(samples: Iterable[Any], elapsed: Micros) -> dict[int, Micros]:
    """Return the computing time by process.

    Drivers have been seen to give more than 100 %: such a sample is ignored.
    """
    percents: dict[int, list[int]] = defaultdict(list)
    for sample in samples:
        if sample.smUtil <= PERCENT:
            percents[sample.pid].append(sample.smUtil)
    return {pid: sum(each) * elapsed // (PERCENT * len(each)) for pid, each in percents.items()}
