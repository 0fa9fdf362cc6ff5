"""Names under which shims keep what a job's process has, so that it outlives the daemon and is found again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import accumulate

from carpool.core.model import Demand, DeviceId, MemoryClass
from carpool.devices.base import DeviceError, Extent

#: "board:<device>:<slot>", "lane:<lane>", "bank:<device>:<bank>", "store:<device>".  A lane or bank in extents has one
#: name for each extent: "lane:<lane>:<offset>:<size>", "bank:<device>:<bank>:<offset>:<size>".
#: A secondary process has the board under a name of its own: "companion:<device>:<slot>:<pid>".
#: The memory of weights: "weights:<device>:<key>:<size>:<reload_us>:<bank>:<number>", with the bank in which they lie
#: and an increasing number: of several names with the same bank or the same key, the last one is valid.  Where memory
#: comes in extents both are 0, the file only records that the weights exist, and the memory itself is
#: "weights-extent:<device>:<key>:<number>:<size>".  A bank whose weights were dropped: "weights-bank:<device>:<bank>".
BOARD, LANE, BANK, STORE, COMPANION, WEIGHTS = "board", "lane", "bank", "store", "companion", "weights"
WEIGHTS_EXTENT, WEIGHTS_BANK = "weights-extent", "weights-bank"


def by_name(names: list[str], fds: list[int]) -> dict[str, int]:
    """Return what a shim keeps, by name.  Owns the descriptors: those without a name of their own are closed."""
    kept: dict[str, int] = {}
    for place, fd in enumerate(fds):
        if place < len(names) and names[place] not in kept:
            kept[names[place]] = fd
        else:
            os.close(fd)
    return kept


def memory_name(kind: MemoryClass, device: DeviceId, number: int) -> str:
    """Return the name of a lane or bank."""
    return f"{BANK}:{device}:{number}" if kind is MemoryClass.PERSISTENT else f"{LANE}:{number}"


def weights_name(device: DeviceId, demand: Demand, bank: int = 0, number: int = 0) -> str:
    """Return the name of weights.  ``bank`` and ``number`` are 0 where memory comes in extents."""
    return f"{WEIGHTS}:{device}:{demand.weights}:{demand.size}:{demand.reload_us}:{bank}:{number}"


def weights_of(name: str) -> tuple[DeviceId, Demand, int, int]:
    """Parse a name made by `weights_name`.  Raises ValueError."""
    _, device, key, size, reload_us, bank, number = name.split(":")
    return device, Demand(key, int(size), int(reload_us)), int(bank), int(number)


def weights_extent_name(device: DeviceId, key: str, number: int, size: int) -> str:
    """Return the name of an extent of weights.  ``size`` in bytes."""
    return f"{WEIGHTS_EXTENT}:{device}:{key}:{number}:{size}"


def weights_extent_of(name: str) -> tuple[DeviceId, str, int, int]:
    """Parse the name of an extent of weights: device, key, number, size.  Raises ValueError."""
    _, device, key, number, size = name.split(":")
    return device, key, int(number), int(size)


def weights_key_of(name: str) -> str:
    """Return the key in either kind of name of weights."""
    return name.split(":")[2]


def free_bank_name(device: DeviceId, bank: int) -> str:
    """Return the name of a bank whose weights were dropped."""
    return f"{WEIGHTS_BANK}:{device}:{bank}"


def free_bank_of(name: str) -> tuple[DeviceId, int] | None:
    """Parse the name of a bank whose weights were dropped: device, bank; None for another kind.  Raises ValueError."""
    if not name.startswith(f"{WEIGHTS_BANK}:"):
        return None
    _, device, bank = name.split(":")
    return device, int(bank)


def is_weights_extent(name: str) -> bool:
    """Return whether a name is that of the memory of weights itself, on a device whose memory comes in extents."""
    return name.startswith(f"{WEIGHTS_EXTENT}:")


def weights_in(kept: Mapping[str, int]) -> list[str]:
    """List the names of weights among what a shim keeps, files before extents."""
    kinds = (f"{WEIGHTS}:", f"{WEIGHTS_EXTENT}:", f"{WEIGHTS_BANK}:")
    return sorted((name for name in kept if name.startswith(kinds)), key=is_weights_extent)


def extent_names(whole: str, sizes: Sequence[int]) -> list[str]:
    """List the names of the extents of a lane or bank, in order."""
    offsets = accumulate(sizes, initial=0)
    return [f"{whole}:{offset}:{size}" for offset, size in zip(offsets, sizes, strict=False)]


def kept_extents(whole: str, kept: Mapping[str, int]) -> list[Extent]:
    """Return the extents of a lane or bank among what a shim keeps, in order.

    Raises DeviceError if they do not lie one after another from the beginning, ValueError for impossible names.
    """
    found = []
    for name, fd in kept.items():
        if name.startswith(f"{whole}:"):
            offset, size = map(int, name.removeprefix(f"{whole}:").split(":"))
            found.append((offset, size, fd))
    end, files = 0, []
    for offset, size, fd in sorted(found):
        if offset != end or size <= 0:
            raise DeviceError(f"what was kept of {whole} has a gap at {end}")
        files.append(Extent(fd, size))
        end += size
    return files
