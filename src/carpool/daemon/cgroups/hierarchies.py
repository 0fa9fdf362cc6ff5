"""The hierarchies of control groups, and the group of this process in each, from two texts of the kernel.

Version 2 has one hierarchy, of which the controllers are switched on group by group.  Version 1 has one for each
controller.  A machine may have both (*hybrid*): version 2 then has no controllers, but can end all processes of a
group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MEMORY, PIDS = "memory", "pids"  # controllers, by the kernel's names
UNIFIED = ""  # what stands for version 2 in /proc/PID/cgroup in the place of controllers


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
