"""Directories of users are deleted with the rights of their owners, whatever these have put there."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from carpool.daemon.hooks.removed_directories import RemovedDirectories
from carpool.daemon.privileges import direct
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.protocol.paths import Home
from tests.daemon.daemon_harness import NOBODY

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to have files of another user")
#: Of the directories; without root all files are the user's own.
OWNER = NOBODY if os.geteuid() == 0 else os.geteuid()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.jobs.mkdir(parents=True, mode=0o711)
    return found


def directory(home: Home, job: int) -> Path:
    DirectPrivileges(home).create_directory(job, OWNER, os.getegid() if OWNER != NOBODY else NOBODY)
    return home.job(job).root


def give(*paths: Path) -> None:
    """They belong to the owner of the job, as if the job had made them."""
    if OWNER == NOBODY:
        for path in paths:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def make_deep(root: Path, levels: int) -> None:
    """Directories in directories, further down than a path can name."""
    at = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        at, above = os.open("d", os.O_RDONLY, dir_fd=at), at
        os.close(above)
        if OWNER == NOBODY:
            os.fchown(at, NOBODY, NOBODY)
    os.close(at)


async def remove(home: Home, *jobs: int, patience_s: float = 60.0) -> None:
    removed = RemovedDirectories(home, DirectPrivileges(home), patience_s)
    assert removed.move_aside(jobs) == list(jobs)
    await removed.delete()


async def test_everything_goes_however_it_is_closed_and_however_deep(home: Home) -> None:
    root = directory(home, 1)
    (root / "log").write_text("text")
    (root / "closed" / "inner").mkdir(parents=True)
    (root / "closed" / "inner" / "file").touch()
    os.mkfifo(root / "lock")
    for number in range(2500):
        (root / "closed" / f"{number}").touch()
    give(root, *root.rglob("*"))
    make_deep(root, 1500)
    for path in (root / "closed" / "inner", root / "closed", root):
        path.chmod(0)
    await remove(home, 1, 2)  # 2 never had a directory
    assert list(home.removed.iterdir()) == [] and list(home.jobs.iterdir()) == []


async def test_links_are_removed_and_not_followed(home: Home, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("text")
    root = directory(home, 1)
    (root / "link").symlink_to(outside)
    (root / "sub").mkdir()
    (root / "sub" / "link").symlink_to(outside)
    (root / "log").symlink_to(outside / "precious")
    give(root, *root.rglob("*"))
    mode = outside.stat().st_mode
    await remove(home, 1)
    assert not (home.removed / "1").exists()
    assert (outside / "precious").read_text() == "text" and outside.stat().st_mode == mode


@needs_root
async def test_what_the_owner_could_not_delete_is_not_deleted_and_is_reported_once(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    root = directory(home, 1)
    (root / "own").touch()
    (root / "foreign").mkdir()
    give(root, *root.rglob("*"))
    (root / "foreign" / "precious").touch()
    os.chown(root / "foreign", 0, 0)
    removed = RemovedDirectories(home, DirectPrivileges(home))
    assert removed.move_aside([1]) == [1]
    with caplog.at_level(logging.WARNING):
        await removed.delete()
        await removed.delete()
    assert (home.removed / "1" / "foreign" / "precious").exists() and not (home.removed / "1" / "own").exists()
    assert [record.getMessage() for record in caplog.records] == [
        f"{home.removed / '1'}: not everything could be removed: its owner left something there, or too much"
    ]


async def test_a_removal_that_takes_too_long_is_ended_and_goes_on_later(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = tmp_path / "never_through.py"
    never.write_text("import signal\nsignal.pause()\n")
    root = directory(home, 1)
    (root / "log").touch()
    give(root, *root.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(direct, "REMOVER", never)
        await remove(home, 1, patience_s=0.0)
    assert (home.removed / "1").exists()
    await RemovedDirectories(home, DirectPrivileges(home)).delete()
    assert not (home.removed / "1").exists()


async def test_jobs_of_several_owners_and_of_more_than_one_batch(home: Home) -> None:
    for number in range(1, 151):
        files = home.job(number)
        files.root.mkdir()
        files.log.touch()
        if number % 50:
            give(files.root, files.log)
    await remove(home, *range(1, 151))
    assert list(home.removed.iterdir()) == []
