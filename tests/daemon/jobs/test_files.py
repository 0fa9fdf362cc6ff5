"""What a root daemon does with files that a job's owner has replaced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from carpool.daemon.jobs.files import shim_lives, take_lock
from carpool.protocol.paths import Home, JobFiles


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
