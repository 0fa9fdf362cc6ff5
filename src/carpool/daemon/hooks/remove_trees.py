"""Empties directories of a user, as that user: ``python -I -S .../remove_trees.py UID GID FD...``.

A process of its own, which the daemon ends when it takes too long.  The owner of the directories may have put anything
there, and may change it meanwhile: nothing is followed, waited for or removed by mistake that the owner could not have
removed.  However deep the directories are, no more than two are open: deeper ones are moved up first. Standard library
only.
"""

from __future__ import annotations

import itertools
import os
import sys
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":  # run by path in isolated mode: make the package importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from carpool.runtime.user_process import become

AT_ONCE = 1000  # names that are read of one directory


def main(uid: int, gid: int, directories: list[int]) -> int:
    """Empty the directories; return 1 if something is left.  Raises OSError if the owner's rights are unavailable."""
    if os.geteuid() == 0:
        _leave_the_daemons_oom_score()
        become(uid, gid, [])
    left = [directory for directory in directories if not empty(directory)]
    return 1 if left else 0


def _leave_the_daemons_oom_score() -> None:
    """Reset the OOM score while permitted: the kernel is to kill the daemon last, but not this process.

    Does nothing without privileges.
    """
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")


def empty(top: int) -> bool:
    """Empty an open directory; return whether nothing is left in it."""
    try:
        os.fchmod(top, 0o700)
        while names := _names(top):
            if not sum([_removed(top, name) for name in names]):
                return False
    except OSError:
        return False
    return True


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, AT_ONCE)]


def _removed(top: int, name: str) -> bool:
    try:
        try:
            os.unlink(name, dir_fd=top)
        except IsADirectoryError:
            _remove_directory(top, name)
    except OSError:
        return False
    return True


def _remove_directory(top: int, name: str) -> None:
    """Remove a directory with its contents; subdirectories are moved to the top.  Raises OSError."""
    os.chmod(name, 0o700, dir_fd=top)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        while names := _names(fd):
            for inner in names:
                _take_out(fd, inner, top)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=top)


def _take_out(fd: int, name: str, top: int) -> None:
    """Remove a file, or move a directory to the top.  Raises OSError."""
    try:
        os.unlink(name, dir_fd=fd)
    except IsADirectoryError:
        os.chmod(name, 0o700, dir_fd=fd)
        os.rename(name, os.urandom(16).hex(), src_dir_fd=fd, dst_dir_fd=top)


if __name__ == "__main__":
    owner, group, *descriptors = map(int, sys.argv[1:])
    sys.exit(main(owner, group, descriptors))
