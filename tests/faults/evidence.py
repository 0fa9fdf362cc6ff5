"""What can be seen of processes and files from outside."""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path


def words(kind: str) -> str:
    """What a message says of the kind of failure."""
    return os.strerror(getattr(errno, kind)) if kind.isupper() else kind


def let_go(fifo: Path) -> None:
    """Whoever reads it now, or will."""
    fd = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    fifo.rename(fifo.with_suffix(".old"))
    fifo.write_text("")
    os.close(fd)


def open_files(pid: int) -> Counter[str]:
    """How many descriptors of each kind a process has."""
    found: Counter[str] = Counter()
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found[_kind(str(path.readlink()))] += 1
    return found


def _kind(target: str) -> str:
    """Sockets, pidfds and memfds have numbers and names that are others each time."""
    if target.startswith("/memfd:"):
        return "memfd"
    return target.rpartition("/")[2] if target.startswith("/") else re.sub(r"anon_inode|[\[\]:0-9]", "", target)


def settling(found: Counter[str]) -> bool:
    return "pidfd" in found


#: SQLite keeps the descriptors of connections that were closed while the writer's is open, and takes them for the next
#: ones: as many as there ever were at once, which differs from run to run.
SPARE = Counter({"journal.sqlite": 3})


def more_than(found: Counter[str], wanted: Counter[str]) -> dict[str, int]:
    return dict(found - wanted - SPARE)


def processes_about(root: Path) -> dict[int, str]:
    """Processes whose command line names this directory."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(root) in command:
                    found[int(entry.name)] = command
    return found
