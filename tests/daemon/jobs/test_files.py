"""What a root daemon does with files that a job's owner has replaced."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from carpool.daemon.jobs.files import read_exit, shim_lives, was_started
from carpool.daemon.privileges.base import Child
from carpool.daemon.privileges.direct import DirectPrivileges
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


def spawn(files: JobFiles) -> Child | None:
    """The shim finds no daemon, and ends when the directory of its job has gone."""
    return mine(files).spawn_shim(1, 1, os.geteuid(), os.getegid())


def mine(files: JobFiles) -> DirectPrivileges:
    return DirectPrivileges(Home(files.root.parents[1]))


@pytest.mark.parametrize("replace", REPLACED)
def test_what_is_no_lock_is_held_by_nobody_and_never_waited_for(
    files: JobFiles, replace: Callable[[Path], None]
) -> None:
    replace(files.lock)
    assert not shim_lives(mine(files), files)
    with pytest.raises(OSError, match="lock"):
        spawn(files)


def test_a_lock_is_taken_once(files: JobFiles) -> None:
    shim = spawn(files)
    assert shim is not None and shim.popen is not None
    assert shim_lives(mine(files), files) and spawn(files) is None
    shim.popen.kill()
    shim.collect()
    assert not shim_lives(mine(files), files)


def refused(*_: object, **__: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_without_descriptors_nothing_is_known_of_a_job(files: JobFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is its shim dead, nor has nobody recorded how it ended, nor was it never started."""
    files.exit.write_text('{"code": 3}')
    monkeypatch.setattr(os, "open", refused)
    assert shim_lives(mine(files), files)
    with pytest.raises(OSError, match="Too many open files"):
        read_exit(mine(files), files, os.geteuid())
    with pytest.raises(OSError, match="Too many open files"):
        was_started(mine(files), files, os.geteuid())
    monkeypatch.undo()
    record = read_exit(mine(files), files, os.geteuid())
    assert record is not None and record.code == 3 and not shim_lives(mine(files), files)
    assert not was_started(mine(files), files, os.geteuid())


@pytest.mark.parametrize("call", ["fstat", "fchown"])
def test_a_lock_that_cannot_be_taken_leaves_no_descriptor(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 0)
        patch.setattr(os, "chown", lambda *_: None)
        patch.setattr(os, call, refused)
        with pytest.raises(OSError, match="Too many open files"):
            DirectPrivileges(Home(files.root.parents[1])).spawn_shim(1, 1, os.getuid(), os.getgid())
    assert descriptors() == before
