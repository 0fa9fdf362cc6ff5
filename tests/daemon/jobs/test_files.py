"""What a root daemon does with files that a job's owner has replaced."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from carpool.daemon.jobs.files import read_exit, shim_lives, take_lock
from carpool.protocol.paths import Home, JobFiles
from tests.descriptors import descriptors


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    found = Home(tmp_path).job(1)
    found.root.mkdir(parents=True)
    return found


def fifo(lock: Path) -> None:
    os.mkfifo(lock)


def link(lock: Path) -> None:
    other = lock.with_name("other")
    other.touch()
    lock.symlink_to(other)


def hard_link(lock: Path) -> None:
    """Of a file whose owner would become the job's if the daemon gave the lock away."""
    other = lock.with_name("other")
    other.touch()
    lock.hardlink_to(other)


REPLACED: list[Callable[[Path], None]] = [fifo, link, hard_link, os.mkdir]


@pytest.mark.parametrize("replace", REPLACED)
def test_what_is_no_lock_is_held_by_nobody_and_never_waited_for(
    files: JobFiles, replace: Callable[[Path], None]
) -> None:
    replace(files.lock)
    assert not shim_lives(files)
    with pytest.raises(OSError, match="lock"):
        take_lock(files)


def test_a_lock_is_taken_once(files: JobFiles) -> None:
    fd = take_lock(files)
    assert fd is not None and shim_lives(files) and take_lock(files) is None
    os.close(fd)
    assert not shim_lives(files)


def refused(*_: object, **__: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_without_descriptors_nothing_is_known_of_a_job(files: JobFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is its shim dead, nor has nobody recorded how it ended."""
    files.exit.write_text('{"code": 3}')
    monkeypatch.setattr(os, "open", refused)
    assert shim_lives(files)
    with pytest.raises(OSError, match="Too many open files"):
        read_exit(files, os.geteuid())
    monkeypatch.undo()
    record = read_exit(files, os.geteuid())
    assert record is not None and record.code == 3 and not shim_lives(files)


@pytest.mark.parametrize("call", ["fstat", "fchown"])
def test_a_lock_that_cannot_be_taken_leaves_no_descriptor(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 0)
        patch.setattr(os, call, refused)
        with pytest.raises(OSError, match="Too many open files"):
            take_lock(files)
    assert descriptors() == before
