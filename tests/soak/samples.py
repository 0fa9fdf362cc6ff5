"""What a daemon uses, looked at again and again, and whether any of that grows."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import linear_regression, mean

from tests.daemon.daemon_harness import Daemon
from tests.leftovers import marked_processes

#: Of each of so many parts of a run the least value counts: jobs that live have descriptors and memory, and how many
#: there are at a time depends on what else the machine does.
PARTS = 20
#: What a quantity may grow in an hour, as a part of its mean, or by its own amount if that is more.
SHARE = 0.05
AMOUNTS = {
    "memory_bytes": 8 << 20,
    "descriptors": 8,
    "threads": 2,
    "processes": 4,
    "journal_bytes": 16 << 20,
    "home_bytes": 32 << 20,
    "shared_memory_bytes": 8 << 20,
}


@dataclass(frozen=True)
class Sample:
    """At ``at_s``; memory, descriptors and threads are the daemon's, ``processes`` are all that the run has started."""

    at_s: float
    memory_bytes: int
    descriptors: int
    threads: int
    processes: int
    journal_bytes: int
    home_bytes: int
    shared_memory_bytes: int


@dataclass(frozen=True)
class Growth:
    """Of one quantity: its mean, how much the straight line of its least values rises in an hour, and what it may."""

    quantity: str
    mean: float
    per_hour: float
    allowed: float


def look(daemon: Daemon, at_s: float) -> Sample:
    """Raises OSError where the daemon has gone."""
    assert daemon.process is not None
    process = Path(f"/proc/{daemon.process.pid}")
    fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    # Not `rglob`, which raises when a directory is removed meanwhile.
    files = [Path(directory, name) for directory, _, names in os.walk(daemon.home) for name in names]
    rooms = {path: _room(path) for path in files}
    return Sample(
        at_s=at_s,
        memory_bytes=int(fields["RssAnon"].split()[0]) * 1024,
        descriptors=len(list((process / "fd").iterdir())),
        threads=int(fields["Threads"]),
        processes=len(marked_processes()),
        journal_bytes=sum(room for path, room in rooms.items() if path.name.startswith("journal.sqlite")),
        home_bytes=sum(rooms.values()),
        shared_memory_bytes=_shared_memory(process),
    )


def growths(samples: list[Sample]) -> list[Growth]:
    """Of every quantity, by least squares.  Raises statistics.StatisticsError for fewer than two samples."""
    found, size = [], max(1, len(samples) // PARTS)
    parts = [samples[begin : begin + size] for begin in range(0, len(samples) - size + 1, size)]
    times = [part[0].at_s / 3600 for part in parts]
    for quantity, amount in AMOUNTS.items():
        least = [min(float(asdict(sample)[quantity]) for sample in part) for part in parts]
        slope, _ = linear_regression(times, least)
        typical = mean(float(asdict(sample)[quantity]) for sample in samples)
        found.append(Growth(quantity, typical, slope, max(amount, SHARE * typical)))
    return found


def _room(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0  # removed since it was listed


def _shared_memory(process: Path) -> int:
    """Bytes that exist of the files of memory that the daemon has open."""
    seen = {}
    for fd in (process / "fd").iterdir():
        try:
            if "/memfd:" in os.readlink(fd):  # noqa: PTH115 - the name of something that has none
                status = fd.stat()
                seen[status.st_ino] = status.st_blocks * 512
        except FileNotFoundError:
            continue
    return sum(seen.values())
