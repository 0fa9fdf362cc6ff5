"""Pickles between processes of one user: a file that another user could have written is never unpickled.

A task is a directory with ``call`` (what to run) and later ``result``.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

CALL, RESULT = "call", "result"
#: How long results are kept, and tasks that never had a result.
KEPT_S, KEPT_WITHOUT_RESULT_S = 30 * 86400, 365 * 86400


def new_task(root: Path) -> Path:
    """Make a directory for one task below ``root``, which is made if it is missing.  Raises OSError."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check(os.lstat(root), root, stat.S_ISDIR)
    return Path(tempfile.mkdtemp(prefix="", dir=root))


def write(path: Path, data: bytes) -> None:
    """Write a file completely or not at all, for its owner only; an earlier file is replaced.  Raises OSError."""
    fd, name = tempfile.mkstemp(prefix=".", dir=path.parent)  # 0600
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    Path(name).replace(path)


def read(path: Path) -> bytes:
    """Read a file.  Raises PermissionError for a file that another user may have written, and OSError."""
    _check(os.lstat(path.parent), path.parent, stat.S_ISDIR)
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        _check(os.fstat(file.fileno()), path, stat.S_ISREG)
        return file.read()


def _check(status: os.stat_result, path: Path, is_kind: object) -> None:
    assert callable(is_kind)
    if not is_kind(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        text = "belongs to another user, or others may use it: nothing of it is unpickled"
        raise PermissionError(f"{path} {text}; chmod go-rwx if it is yours")


def remove_old(root: Path) -> None:
    """Remove tasks that are older than results, or tasks without a result, are kept."""
    now = time.time()
    for task in root.iterdir():
        try:
            done = (task / RESULT).exists()
            if now - task.stat().st_mtime > (KEPT_S if done else KEPT_WITHOUT_RESULT_S):
                shutil.rmtree(task, ignore_errors=True)
        except OSError:
            continue  # another process removes it at the same time
