"""What a root daemon does with files that a job's owner has replaced."""

from __future__ import annotations

import errno
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from carpool.daemon.jobs.files import read_exit, shim_lives, was_started
from carpool.daemon.privileges.base import Child
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.protocol.client import DaemonClient
from carpool.protocol.paths import Home, JobFiles
from tests.daemon.daemon_harness import NOBODY, Daemon, Make, as_nobody, refusal
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


# Files that users name for their jobs' output are opened with the rights of the user, never with the daemon's


def test_a_user_reaches_no_file_that_is_not_the_users(daemon: Daemon, home: Path, tmp_path: Path) -> None:
    theirs, ours = home.parent / "theirs", home.parent / "ours"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    ours.write_text("secret\n")
    (theirs / "link").symlink_to(ours)
    for name in (str(ours), str(theirs / "link")):
        job = as_nobody(daemon, f"daemon.submit('echo', 'x', cwd='/tmp', output={name!r})")
        end = daemon.wait(job)
        assert end["outcome"] == "failed" and "Permission denied" in end["reason"]["text"]
    assert ours.read_text() == "secret\n"
    job = as_nobody(daemon, f"daemon.submit('echo', 'x', cwd='/tmp', output={str(theirs / '%j.out')!r})")
    assert daemon.wait(job)["outcome"] == "succeeded"
    made = theirs / f"{job}.out"
    assert made.read_text() == "x\n" and made.stat().st_uid == NOBODY


@pytest.mark.parametrize("name", ["relative", "/tmp/%x", "/tmp/\0", "/tmp/%"])
def test_names_that_are_no_files_of_a_job(daemon: Daemon, name: str) -> None:
    assert refusal(daemon.submit, "true", output=name).code == "bad_output"


# The limit `job_log`, with real jobs: a job that writes more goes on, and its log can be read all the time


LIMIT = 64 << 10
#: Writes much, waits until the shim has deleted some of it, and writes on.
CHATTY = """
import json, os, time
for number in range(20_000):
    print(f"line {number:06}")
while os.fstat(1).st_blocks * 512 > 128 << 10:
    time.sleep(0.05)
for number in range(20_000, 40_000):
    print(f"line {number:06}")
print(json.dumps({"size": os.fstat(1).st_size}))
"""


def test_a_job_that_writes_more_than_its_log_may_have(make_daemon: Make, home: Path) -> None:
    daemon = make_daemon(limits='job_log = "64KiB"\n').started()
    job = daemon.python(CHATTY)
    followed = list(daemon.lines(job))
    assert daemon.wait(job)["outcome"] == "succeeded"
    size = json.loads(followed[-1])["size"] + len(followed[-1]) + 1
    log = home / "jobs" / str(job) / "log"
    assert log.stat().st_size == size and log.stat().st_blocks * 512 <= LIMIT + 4096
    mark, *lines = daemon.output(job).splitlines()
    assert mark.startswith("[carpool: the first ") and lines[-1] == followed[-1] and lines[-2] == "line 039999"
    assert [line for line in followed if "\0" in line] == []
    with DaemonClient(home) as client:
        past, end = client.past_log(job)
        assert end == size and past == daemon.output(job).encode()
        assert b"".join(client.logs(job, offset=end)) == b""


# `core_dumps` in limits.toml: whether jobs may leave any.  `tests/e2e/test_withdrawn.py` looks at what is in them


LIMITS = "import json, resource; print(json.dumps(resource.getrlimit(resource.RLIMIT_CORE)))"


@pytest.mark.parametrize(("text", "limited"), [("core_dumps = false", True), ("core_dumps = true", False), ("", False)])
def test_a_job_may_leave_a_core_dump_or_not(make_daemon: Make, text: str, limited: bool) -> None:
    daemon = make_daemon(limits=f"{text}\n").started()
    job = daemon.python(LIMITS)
    assert daemon.wait(job)["outcome"] == "succeeded"
    soft, hard = json.loads(daemon.output(job))
    if limited:
        assert 0 <= soft == hard <= 1
    else:
        assert (soft, hard) == resource.getrlimit(resource.RLIMIT_CORE)
