"""The number of processes of a control group that the kernel has killed for want of host memory.

Standard library only.
"""

from __future__ import annotations

import os

ROOT = "/sys/fs/cgroup"


def kill_counter(root: str = ROOT, groups: str = "/proc/self/cgroup") -> str | None:
    """Return the file that counts for this process's group; None if there is none.

    The file is that of cgroup version 2, else of version 1.  A group without the controller is counted with the nearest
    group above that has it.  A process that is moved to another group afterwards goes on reading the same file.
    """
    try:
        with open(groups) as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    for _, controllers, path in lines:
        if not controllers:
            found = _nearest(root, path, "memory.events")
        elif "memory" in controllers.split(","):
            found = _nearest(f"{root}/memory", path, "memory.oom_control")
        else:
            continue
        if found is not None:
            return found
    return None


def kills_in_group(counter: str | None) -> int | None:
    """Return the count, which only rises; None if it cannot be read.  ``counter``: see `kill_counter`."""
    try:
        with open(counter or os.devnull) as file:
            for line in file:
                word, _, number = line.partition(" ")
                if word == "oom_kill":
                    return int(number)
    except (OSError, ValueError):
        return None
    return None


def _nearest(top: str, path: str, name: str) -> str | None:
    while True:
        file = f"{top}{path.rstrip('/')}/{name}"
        if _counts(file):
            return file
        if path in ("", "/"):
            return None
        path = path.rpartition("/")[0]


def _counts(file: str) -> bool:
    return kills_in_group(file) is not None
