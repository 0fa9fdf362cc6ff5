"""How often the kernel has ended processes of this control group for want of host memory.  Standard library only."""

from __future__ import annotations

import os

ROOT = "/sys/fs/cgroup"


def kills_in_group(root: str = ROOT, groups: str = "/proc/self/cgroup") -> int | None:
    """A counter that only rises; None where it cannot be read.  Version 2 of control groups, else version 1."""
    try:
        with open(groups) as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    for _, controllers, path in lines:
        if not controllers:
            found = _read(root + path, "memory.events")
        elif "memory" in controllers.split(","):
            found = _read(os.path.join(root, "memory") + path, "memory.oom_control")  # noqa: PTH118 - see __main__.py
        else:
            continue
        if found is not None:
            return found
    return None


def _read(directory: str, name: str) -> int | None:
    try:
        with open(f"{directory}/{name}") as file:
            for line in file:
                word, _, number = line.partition(" ")
                if word == "oom_kill":
                    return int(number)
    except (OSError, ValueError):
        return None
    return None
