"""The hierarchies of control groups, the group of this process in each, and the memory that their limits leave.

Version 2 has one hierarchy, of which the controllers are switched on group by group.  Version 1 has one for each
controller.  A machine may have both (*hybrid*): version 2 then has no controllers, but can end all processes of a
group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MEMORY, PIDS = "memory", "pids"  # controllers, by the kernel's names
UNIFIED = ""  # what stands for version 2 in /proc/PID/cgroup in the place of controllers
MEMINFO = Path("/proc/meminfo")
#: Files of the limit and of the use, and the line of ``memory.stat`` that can be reclaimed: of versions 2 and 1.
_UNIFIED = ("memory.max", "memory.current", "inactive_file")
_LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """The directories of this process's own groups: in version 2, and of version 1 by controller."""

    unified: Path | None
    legacy: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class _Mount:
    controllers: frozenset[str]
    root: str  # the group that is mounted
    point: str

    def directory(self, group: str) -> Path | None:
        """Return the directory of a group; None: the group is not below what is mounted."""
        root = self.root.rstrip("/")
        inside = group == root or group.startswith(root + "/")
        return Path(self.point + group[len(root) :]) if inside and not group.startswith("/..") else None


def find_hierarchies(mounts: str, groups: str) -> Hierarchies:
    """Read ``/proc/self/mountinfo`` and ``/proc/self/cgroup``, given as texts.  Of several mounts the first counts."""
    own = dict(_own_groups(groups))
    found: dict[str, Path] = {}
    for mount in _mounts(mounts):
        for controller in mount.controllers & own.keys():
            directory = mount.directory(own[controller])
            if directory is not None:
                found.setdefault(controller, directory)
    return Hierarchies(found.pop(UNIFIED, None), found)


def hierarchies_here() -> Hierarchies:
    """Return the hierarchies of this process.  Raises OSError where there is no /proc."""
    proc = Path("/proc/self")
    return find_hierarchies(*((proc / name).read_text(errors="surrogateescape") for name in ("mountinfo", "cgroup")))


def _own_groups(text: str) -> Iterator[tuple[str, str]]:
    """Yield the controllers and the path of the process's group for each."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        yield from ((controller, path) for controller in controllers.split(","))


def _mounts(text: str) -> Iterator[_Mount]:
    """Yield the mounts of control groups; see proc_pid_mountinfo(5)."""
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, point = map(_unescaped, fields.split(" ")[3:5])
        if kind == "cgroup2":
            yield _Mount(frozenset({UNIFIED}), root, point)
        elif kind == "cgroup":
            yield _Mount(frozenset(options.split(",")), root, point)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), text)


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
