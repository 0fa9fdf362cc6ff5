"""Memfds: files of memory, with holes where nothing was written."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from pathlib import Path

from carpool.devices.base import DeviceError

#: Where the kernel says which page sizes it uses for shared memory; missing if the kernel knows one size only.
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 512  # unit of st_blocks
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
#: Most bytes that are punched at once, so that programs that need the machine's pages get pages piece by piece.
_PIECE = 64 << 20

_fallocate = ctypes.CDLL(None, use_errno=True).fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def round_up(size: int, unit: int) -> int:
    """``size`` bytes rounded up to a whole number of ``unit`` bytes."""
    return -(-size // unit) * unit


def create(name: str, size: int, *, sealed: bool) -> int:
    """Create a memfd.  Sealed: its size never changes, so every mapping stays valid always.  Raises DeviceError."""
    try:
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise DeviceError(f"cannot create a file of memory: {error}") from None
    try:
        os.ftruncate(fd, size)
        if sealed:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except (OSError, OverflowError) as error:
        os.close(fd)
        raise DeviceError(f"cannot create {size} bytes of device memory: {error}") from None
    return fd


def is_sealed(fd: int, size: int) -> bool:
    """Whether ``fd`` is a file of memory whose size is fixed at ``size``.  Raises OSError."""
    try:
        return os.fstat(fd).st_size == size and fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError as error:
        if error.errno != errno.EINVAL:  # another kind of file
            raise
        return False


def pages(fd: int) -> int:
    """Return the bytes of the pages that a file has."""
    return pages_of(os.fstat(fd))


def pages_of(status: os.stat_result) -> int:
    """Return the bytes of the pages that a file has, from the result of `os.fstat`."""
    return status.st_blocks * _BLOCK


def small_pages_only(directory: Path = HUGE_PAGES) -> bool:
    """Whether files of memory have only pages that were written; with huge pages, such files have more."""
    choices = [path.read_text() for path in directory.glob("**/shmem_enabled")]
    return all(any(f"[{word}]" in choice for word in ("never", "deny", "inherit")) for choice in choices)


def extents(fd: int) -> list[tuple[int, int]]:
    """Return the ranges (begin, end) with pages, in order."""
    found: list[tuple[int, int]] = []
    end = 0
    while True:
        try:
            begin = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole from here on
            return found
        end = os.lseek(fd, begin, os.SEEK_HOLE)
        found.append((begin, end))


def punch(fd: int, size: int) -> None:
    """Give up to ``size`` bytes of pages back, the last ones first: smaller jobs use the first ones."""
    for begin, end in reversed(extents(fd)):
        while size > 0 and begin < end:
            piece = min(size, end - begin, _PIECE)
            _punch(fd, end - piece, piece)
            end -= piece
            size -= piece


def cut(fd: int, begin: int, end: int) -> None:
    """Give back the pages between two offsets, which are at borders of pages; nothing if ``end`` is not larger."""
    if begin < end:
        _punch(fd, begin, end - begin)


def punch_and_close(fd: int, size: int) -> None:
    """Call `punch`, and close the descriptor, also after an error."""
    try:
        punch(fd, size)
    finally:
        os.close(fd)


def _punch(fd: int, offset: int, size: int) -> None:
    if _fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, offset, size):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def memory_bytes() -> int:
    """Return the RAM that this process may use: MemTotal, or the limit of its control group if that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * PAGE
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return total if limit == "max" else min(total, int(limit))
