"""Weights that an engine's processes have only mapped from their file: on a host device such memory is never moved."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from carpool.core.model import MIB
from carpool.protocol.engines import WeightsFormat

MOST_PROCESSES = 200  # of an engine
LEAST_BYTES = MIB  # of a mapping
LONGEST_HEAD = 100 << 20  # bytes of the text that safetensors begin with, whose length comes first
_File = tuple[str, str]  # its path, and its number


def mapped_weights(pid: int) -> dict[WeightsFormat, int]:
    """Return the bytes of files of weights that a process and those below it have mapped; each file counts once."""
    sizes: dict[_File, int] = {}
    for each in _processes(pid):
        for file, size in _mapped(each).items():
            sizes[file] = max(size, sizes.get(file, 0))
    found: dict[WeightsFormat, int] = {}
    for file, size in sizes.items():
        if (kind := _format(*file)) is not None:
            found[kind] = found.get(kind, 0) + size
    return found


def _processes(pid: int) -> list[int]:
    """Return a process and those below it."""
    found = [pid]
    for each in found:  # grows
        found += [child for child in _children(each) if child not in found][: MOST_PROCESSES - len(found)]
    return found


def _children(pid: int) -> Iterator[int]:
    for threads_own in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, threads_own.read_text().split())


def _mapped(pid: int) -> dict[_File, int]:
    """Return the bytes of each file that a process has mapped for data; nothing for a process that has ended."""
    found: dict[_File, int] = {}
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines():
            place, rights, _, _, inode, *path = line.split(maxsplit=5)
            begin, end = (int(address, 16) for address in place.split("-"))
            if path and "x" not in rights and end - begin >= LEAST_BYTES:
                file = path[0], inode
                found[file] = found.get(file, 0) + end - begin
    return found


@lru_cache(maxsize=1000)
def _format(path: str, _inode: str) -> WeightsFormat | None:
    """Return the format of a file by its first bytes, as caches of models give files other names; None: no weights."""
    with suppress(OSError):
        if stat.S_ISREG(Path(path).stat().st_mode):
            with Path(path).open("rb") as file:
                head = file.read(9)
            if head.startswith(b"GGUF"):
                return "gguf"
            if head[8:] == b"{" and int.from_bytes(head[:8], "little") <= LONGEST_HEAD:
                return "safetensors"
    return None
