"""The processes below another process."""

from __future__ import annotations

import os
from pathlib import Path


def below(root: int) -> list[int]:
    """List the visible processes below ``root`` that have not ended, parents first, without the caller's subtree."""
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and (parent := _parent(directory)):
            children.setdefault(parent, []).append(int(directory.name))
    found: list[int] = []
    front = [root]
    while front:
        front = [pid for parent in front for pid in sorted(children.get(parent, ())) if pid != os.getpid()]
        found += front
    return found


def has_not_ended(pid: int) -> bool:
    """Return whether there is such a process that is not a zombie."""
    return _parent(Path(f"/proc/{pid}")) != 0


def _parent(directory: Path) -> int:
    """Return the parent's pid; 0: the process has ended."""
    try:
        fields = (directory / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if not fields or fields[0] in (b"Z", b"X") else int(fields[1])
