"""How much memory this process and its children may have: by the machine, and by every control group above them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from carpool.daemon.cgroups.hierarchies import MEMORY, Hierarchies

MEMINFO = Path("/proc/meminfo")
#: Files of the limit and of the use, and the line of ``memory.stat`` that can be reclaimed: of versions 2 and 1.
_UNIFIED = ("memory.max", "memory.current", "inactive_file")
_LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True, slots=True)
class MemoryLeft:
    """Bytes of memory: in all, and available now."""

    total: int
    available: int


def memory_left(here: Hierarchies, meminfo: Path = MEMINFO) -> MemoryLeft:
    """Return the smallest of all limits.  Raises OSError, ValueError or KeyError if the machine's own is unknown."""
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    groups = list(_groups(here))
    return MemoryLeft(
        min([total, *(group.total for group in groups)]), min([available, *(group.available for group in groups)])
    )


def _groups(here: Hierarchies) -> Iterator[MemoryLeft]:
    """Yield the memory of each control group that has a limit."""
    for own, names in ((here.unified, _UNIFIED), (here.legacy.get(MEMORY), _LEGACY)):
        for directory in () if own is None else (own, *own.parents):
            with suppress(
                OSError, ValueError
            ):  # no limit ("max"), or no such file: the mount's own directory is reached
                yield _left(directory, *names)


def _left(directory: Path, limit: str, usage: str, cache: str) -> MemoryLeft:
    most, used = (int((directory / name).read_text()) for name in (limit, usage))
    stat = dict(line.split() for line in (directory / "memory.stat").read_text().splitlines())
    return MemoryLeft(most, max(0, most - used + int(stat.get(cache, 0))))
