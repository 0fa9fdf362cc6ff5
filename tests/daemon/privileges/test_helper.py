"""A core that has been taken over asks the helper for what no user may have."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from carpool.daemon.hooks.removed_directories import RemovedDirectories
from carpool.daemon.privileges.by_helper import HELPER, start_helper
from carpool.daemon.privileges.helper import CAPABILITIES
from carpool.protocol.packets import readable
from carpool.protocol.paths import Home
from tests.daemon.daemon_harness import NOBODY, alive
from tests.daemon.privileges.conftest import CORE, OTHER, children, status_of
from tests.descriptors import descriptors

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the helper is root's")


class Core:
    """The other end of a helper's socket, and the rights of a core over its home."""

    def __init__(self, home: Home) -> None:
        self.home = home
        home.removed.mkdir(parents=True)
        home.jobs.mkdir(mode=0o711)
        for path in (home.root, home.jobs, home.removed):
            os.chown(path, CORE, CORE)
        self.helper = start_helper(home, CORE)
        self.socket: socket.socket = self.helper._connection

    def says(self, request: object, *fds: int) -> dict[str, Any]:
        """What the helper answers; descriptors that come with it are closed."""
        data = request if isinstance(request, bytes) else json.dumps(request).encode()
        socket.send_fds(self.socket, [data], list(fds))
        answer, found, _, _ = socket.recv_fds(self.socket, 4096, 4)
        for fd in found:
            os.close(fd)
        told: dict[str, Any] = json.loads(answer)
        return told

    def refuses(self, request: object, *fds: int) -> bool:
        return "errno" in self.says(request, *fds)

    def directory(self, job: int, owner: int = CORE) -> Path:
        root = self.home.job(job).root
        root.mkdir(mode=0o700)
        os.chown(root, owner, owner)
        return root


@pytest.fixture
def core(home: Path) -> Iterator[Core]:
    home.mkdir(mode=0o711)
    core = Core(Home(home))
    yield core
    core.helper.close()


def file(directory: Path, name: str, owner: int, text: str = "secret") -> Path:
    path = directory / name
    path.write_text(text)
    os.chown(path, owner, owner)
    path.chmod(0o600)
    return path


def test_it_is_short_and_needs_the_standard_library_only() -> None:
    lines = HELPER.read_text().splitlines()
    assert len(lines) <= 300
    imported = {line.split()[1].partition(".")[0] for line in lines if line.startswith(("import ", "from "))}
    assert imported <= sys.stdlib_module_names


def open_in(pid: int) -> int:
    """Descriptors of a process."""
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def test_what_makes_no_sense_is_answered_and_forgotten(core: Core) -> None:
    before = open_in(core.helper.pid)
    for request in (
        *(b"\xff", b"[]", b"{}", b"null", b"[" * 4000, b'{"op": []}', b'{"op": "exec"}', b'{"op": "__init__"}'),
        {"op": "open", "job": 1, "name": "log", "uid": NOBODY, "fds": [0]},
        {"op": "open", "job": 1, "name": "log", "uid": NOBODY, "self": 0},
        {"op": "open", "job": True, "name": "log", "uid": NOBODY},
        {"op": "open", "job": 1, "name": "log", "uid": float(NOBODY)},
        {"op": "spawn", "job": 1, "attempt": "1 -c", "uid": NOBODY, "gid": NOBODY},
        {"op": "notify", "uid": 0, "gid": 0},
        {"op": "notify", "uid": NOBODY, "gid": 0},
        {"op": "remove", "jobs": []},
        {"op": "signal", "uid": NOBODY, "number": 9},
    ):
        assert core.refuses(request, *([0] if isinstance(request, bytes) else [])), request
    assert core.refuses({"op": "signal", "uid": NOBODY, "number": 9}, 0)  # no pidfd
    assert open_in(core.helper.pid) == before


@pytest.mark.parametrize("uid", [0, CORE, -1, 2**32 - 1, 2**32, 2**64, None, "0"])
def test_nobody_is_root_or_the_core(core: Core, uid: object) -> None:
    core.directory(1)
    owned = file(core.home.jobs / "1", "log", 0)
    for request in (
        {"op": "spawn", "job": 1, "attempt": 1, "uid": uid, "gid": NOBODY},
        {"op": "create", "job": 1, "uid": uid, "gid": 0},
        {"op": "open", "job": 1, "name": "log", "uid": uid},
        {"op": "environ", "pid": os.getpid(), "uid": uid},
    ):
        assert core.refuses(request)
    assert owned.stat().st_uid == 0 and owned.parent.stat().st_uid == CORE


@pytest.mark.parametrize(("uid", "gid"), [(NOBODY, 0), (NOBODY, 42), (OTHER, 0), (OTHER, CORE), (OTHER, -1)])
def test_a_user_gets_no_group_that_is_not_the_users(core: Core, uid: int, gid: int) -> None:
    core.directory(1)
    assert core.refuses({"op": "spawn", "job": 1, "attempt": 1, "uid": uid, "gid": gid})
    assert core.refuses({"op": "create", "job": 1, "uid": uid, "gid": gid})
    assert core.home.job(1).root.stat().st_uid == CORE


@pytest.mark.parametrize(
    "name", ["/etc/shadow", "../../../etc/shadow", "..", ".", "", "log/../lock", "log\0", "log\n", "secret", "log.0"]
)
def test_a_file_is_one_of_four(core: Core, name: str) -> None:
    file(core.directory(1, NOBODY), "secret", NOBODY)
    assert core.refuses({"op": "open", "job": 1, "name": name, "uid": NOBODY})


def test_no_link_is_followed_and_no_file_of_others_is_opened(core: Core) -> None:
    root = core.directory(1, NOBODY)
    asked = {"op": "open", "job": 1, "name": "log", "uid": NOBODY}
    for target in ("/etc/shadow", "/etc/passwd", file(root, "secret", 0)):
        root.joinpath("log").symlink_to(target)
        assert core.refuses(asked)
        root.joinpath("log").unlink()
    os.link(file(root, "other", NOBODY), root / "log")
    assert core.refuses(asked)  # two names
    root.joinpath("log").unlink()
    os.mkfifo(root / "log")
    assert core.refuses(asked)  # and it does not wait
    root.joinpath("log").unlink()
    file(root, "log", OTHER).chmod(0o666)
    assert core.refuses(asked)
    core.home.jobs.joinpath("2").symlink_to("/etc")
    assert core.refuses({"op": "create", "job": 2, "uid": NOBODY, "gid": NOBODY})
    elsewhere = core.home.root / "elsewhere"
    elsewhere.mkdir(mode=0o711)
    core.directory(3, NOBODY).rename(elsewhere / "3")
    file(elsewhere / "3", "log", NOBODY)
    core.home.jobs.joinpath("3").symlink_to(elsewhere / "3")
    assert core.refuses(asked | {"job": 3})  # nor is a link to a directory
    core.home.removed.rmdir()
    core.home.removed.symlink_to(elsewhere)
    assert core.refuses({"op": "aside", "job": 1}) and core.refuses({"op": "remove", "jobs": [3]})
    root.joinpath("log").unlink()
    file(root, "log", NOBODY)
    assert core.says(asked) == {}
    core.home.jobs.joinpath("4").symlink_to("1")
    assert core.refuses(asked | {"job": 4})


def test_only_what_belongs_to_the_core_is_given_away(core: Core) -> None:
    core.directory(1, 0)
    core.directory(2, OTHER)
    for job in (1, 2):
        assert core.refuses({"op": "create", "job": job, "uid": NOBODY, "gid": NOBODY})
        assert core.refuses({"op": "spawn", "job": job, "attempt": 1, "uid": NOBODY, "gid": NOBODY})
    core.directory(3)
    assert core.says({"op": "create", "job": 3, "uid": NOBODY, "gid": NOBODY}) == {}
    status = core.home.job(3).root.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (NOBODY, NOBODY, 0o700)


@contextmanager
def sleeps(uid: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process of that user."""
    who: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": []}
    with subprocess.Popen(["/usr/bin/sleep", "600"], **who, cwd="/", env={"MARK": "7"}) as process:
        yield process
        with suppress(ProcessLookupError):
            process.kill()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with sleeps(NOBODY) as process:
        yield process


def test_signals_reach_processes_of_the_named_user_only(core: Core, sleeper: subprocess.Popen[bytes]) -> None:
    asked = {"op": "signal", "number": int(signal.SIGKILL)}
    theirs = os.pidfd_open(sleeper.pid)
    with sleeps(0) as root:
        ours = os.pidfd_open(root.pid)
        for uid in (0, NOBODY, OTHER):
            assert core.refuses(asked | {"uid": uid}, ours)
        assert root.poll() is None
    assert core.refuses(asked | {"uid": OTHER}, theirs)
    for number in (signal.SIGTERM, signal.SIGUSR1, 0, -9, 9.0, True):
        assert core.refuses(asked | {"uid": NOBODY, "number": number}, theirs)
    assert sleeper.poll() is None
    assert core.says(asked | {"uid": NOBODY}, theirs) == {}
    assert sleeper.wait() == -signal.SIGKILL
    assert core.says(asked | {"uid": NOBODY}, theirs)["errno"] == errno.ESRCH
    for fd in (ours, theirs):
        os.close(fd)


def test_environments_are_read_with_the_rights_of_the_user(core: Core, sleeper: subprocess.Popen[bytes]) -> None:
    assert b"MARK=7" in core.helper.environment(sleeper.pid, NOBODY).split(b"\0")
    for pid, uid in ((os.getpid(), NOBODY), (1, NOBODY), (sleeper.pid, OTHER), (core.helper.pid, NOBODY)):
        assert core.refuses({"op": "environ", "pid": pid, "uid": uid}), (pid, uid)


def test_a_directory_is_emptied_as_its_owner(core: Core) -> None:
    root = core.directory(1, NOBODY)
    file(root, "log", NOBODY)
    file(core.directory(2, 0), "log", 0)
    core.helper.set_aside(1)
    core.helper.set_aside(2)
    assert core.refuses({"op": "remove", "jobs": [1, 2]}) and core.refuses({"op": "remove", "jobs": [2]})
    child = core.helper.spawn_remover([1])
    assert child.fd is not None
    until_ended(child.fd)
    os.close(child.fd)
    assert not list((core.home.removed / "1").iterdir()) and (core.home.removed / "2" / "log").exists()


def until_ended(pidfd: int) -> None:
    assert readable(pidfd, 30)


async def test_a_removal_through_the_helper_that_takes_too_long_is_ended(core: Core) -> None:
    root = core.directory(1, NOBODY)
    for number in range(1000):
        file(root, str(number), NOBODY)
    removed = RemovedDirectories(core.home, core.helper, patience_s=0.0)
    assert removed.move_aside([1]) == [1]
    await removed.delete()
    assert not any(map(alive, children(core.helper.pid)))
    await RemovedDirectories(core.home, core.helper).delete()
    assert not list(core.home.removed.iterdir())


def test_what_the_helper_may_itself(core: Core) -> None:
    """No capability to trace, to mount, or to load modules; what it has lent out is closed."""
    fields = status_of(core.helper.pid)
    mine = int(status_of(os.getpid())["CapPrm"], 16)
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == mine & sum(1 << bit for bit in CAPABILITIES)
    assert fields["Groups"] == ""


def test_it_ends_with_its_core_and_everything_fails_after_its_own_end(home: Path) -> None:
    home.mkdir(mode=0o711)
    before = descriptors()
    core = Core(Home(home))
    os.kill(core.helper.pid, signal.SIGKILL)
    until_ended(pidfd := os.pidfd_open(core.helper.pid))
    os.close(pidfd)
    with pytest.raises(OSError, match=r"helper .* has ended"):
        core.helper.set_aside(1)
    core.helper.close()
    assert descriptors() == before
