"""What a daemon opens below its own directories: nothing on a mount, nothing through a link."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.daemon.jobs.files import read_exit, shim_lives
from carpool.daemon.privileges import direct
from carpool.daemon.privileges.direct import DirectPrivileges, open_below, owner_below
from carpool.protocol.paths import Home
from tests.descriptors import descriptors

PRIVATE = ["unshare", "--mount", "--propagation", "private"]
#: In a namespace of its own: mounts what ``argv`` says, then tries everything that the daemon does with a job's files.
TRY = """
import errno, os, subprocess, sys
from pathlib import Path
from carpool.daemon.jobs.files import read_exit, shim_lives
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.protocol.paths import Home
home, *mount = Home(Path(sys.argv[1])), *sys.argv[2:]
privileges, files = DirectPrivileges(home), home.job(1)
subprocess.run(["mount", *mount], check=True)
for path in (files.log, files.exit, files.lock):
    path.write_text("{}")
tries = {
    "log": lambda: privileges.open_owned(files.log, os.getuid()),
    "lock": lambda: privileges.spawn_shim(1, 1, os.getuid(), os.getgid()),
    "remove": lambda: privileges.spawn_remover([2]),
}
for name, attempt in tries.items():
    try:
        attempt()
        print(name, "opened")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
print("exit", read_exit(privileges, files, os.getuid()), "lives", shim_lives(privileges, files))
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    found.job(1).root.mkdir(parents=True)
    (found.removed / "2").mkdir(parents=True)
    return found


def tried(home: Home, *mount: str) -> list[str]:
    """What becomes of each attempt, with a mount that the test's own processes do not see."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare(1) to mount a file system")
    if subprocess.run([*PRIVATE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    if not direct.has_openat2():
        pytest.skip("the kernel has no openat2")
    command = [*PRIVATE, sys.executable, "-c", TRY, str(home.root), *mount]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()


def test_of_a_file_system_that_is_mounted_on_a_jobs_directory_nothing_is_opened(home: Home) -> None:
    lines = tried(home, "-t", "tmpfs", "none", str(home.job(1).root))
    assert lines[:2] == ["log EXDEV", "lock EXDEV"] and lines[3] == "exit None lives False"


def test_of_a_file_system_that_is_mounted_on_a_removed_directory_nothing_is_opened(home: Home) -> None:
    assert tried(home, "-t", "tmpfs", "none", str(home.removed / "2"))[2] == "remove EXDEV"


def test_a_file_on_which_another_one_is_mounted_is_not_opened(home: Home, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("text")
    home.job(1).log.touch()
    assert tried(home, "--bind", str(tmp_path / "secret"), str(home.job(1).log))[0] == "log EXDEV"


def test_no_link_on_the_way_is_followed(home: Home, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "log").write_text("text")
    (home.jobs / "3").symlink_to(other)
    before = descriptors()
    for attempt in (
        lambda: DirectPrivileges(home).open_owned(home.job(3).log, os.geteuid()),
        lambda: owner_below(home.jobs, home.jobs / "3"),
        lambda: open_below(home.jobs, home.jobs / "3" / ".." / "1", os.O_RDONLY),
    ):
        with pytest.raises(OSError, match="3") as error:
            attempt()
        assert error.value.errno in (errno.ELOOP, errno.ENOTDIR)
    assert descriptors() == before


@pytest.mark.parametrize("openat2", [True, False])
def test_files_are_opened_with_and_without_openat2(home: Home, monkeypatch: pytest.MonkeyPatch, openat2: bool) -> None:
    if not openat2:
        monkeypatch.setattr(direct, "has_openat2", lambda: False)
    privileges, files = DirectPrivileges(home), home.job(1)
    files.exit.write_text('{"code": 3}')
    record = read_exit(privileges, files, os.geteuid())
    assert record is not None and record.code == 3 and not shim_lives(privileges, files)
    assert owner_below(home.jobs, files.root) == os.geteuid()
    files.log.symlink_to(files.exit)
    with pytest.raises(OSError, match="log") as error:
        privileges.open_owned(files.log, os.geteuid())
    assert error.value.errno == errno.ELOOP
