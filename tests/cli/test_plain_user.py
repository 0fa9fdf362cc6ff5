"""Every command, as an ordinary user gives it on a server whose daemon is root's."""

from __future__ import annotations

import os
import re
import site
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.cli.main import COMMANDS
from tests.adversary.users import python
from tests.cli.conftest import SOURCE, Cli, Forks, environment_of_commands, forking
from tests.cli.real import DEVICE, limited, stopped_afterwards
from tests.daemon.daemon_harness import NOBODY
from tests.homes import home_directory

__all__ = ["python"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")

PATH = os.pathsep.join([str(SOURCE), *site.getsitepackages()])
ENDED = "has ended"
ADMINISTRATORS = "ask an administrator of the daemon"
OF_ROOT = "only root may read the journal"
NOT_THEIRS = "only root and the user who runs the daemon"
#: What is given, with its exit code (None: the machine decides) and a part of what is said.  Job 1 has ended.
CALLS = (
    *(("submit -- /bin/true", 0, ""), ("run -- /bin/echo hello", 0, "hello"), ("env", 0, "CARPOOL_JOIN")),
    *(("docker-args", 0, "--mount"), ("estimate", 2, "either a command or --model"), ("ls", 0, "first")),
    *(("show 1", 0, "succeeded"), ("show 1 --why", 0, "job 1"), ("logs 1", 0, "hi"), ("wait 1", 0, "succeeded")),
    *((f"{word} 1", 5, ENDED) for word in ("hold", "release", "pause", "resume", "requeue")),
    *(("cancel 1", 5, "already ended"), ("update 1 weight=3", 5, ENDED), ("retry 1", 0, "")),
    *(("history", 0, "nobody"), ("usage", 0, "nobody"), ("clean 1 --dry-run", 0, ""), ("top", 0, "host0")),
    *(("engine", 0, "no engine is served"), ("engine rm a", 4, "has no engine a")),
    *(("model", 0, "no models yet"), ("model ls", 0, "no models yet"), ("model add m --factory a:b", 0, "registered")),
    *(("model show m", 0, "a:b"), ("model rm m", 0, "removed"), ("serve --model other", 4, "no model other")),
    *(("k8s plugin --kubelet-dir /none", 2, "no kubelet"), ("kernel install --python /bin/false", 1, "ipykernel")),
    *(("dashboard --port 1", 1, "port 1"), ("policy", 0, "fair"), ("policy fifo", 5, ADMINISTRATORS)),
    *(("set", 0, "quantum"), ("set grace_us=5ms", 5, ADMINISTRATORS), ("limits", 0, "user_running")),
    *(("limits --user root", 5, "administrators may"), ("devices", 0, "host0"), ("drain host0", 5, ADMINISTRATORS)),
    *(("undrain host0", 5, ADMINISTRATORS), ("events", 0, "submitted as first"), ("log-level", 5, ADMINISTRATORS)),
    *(("events --json", 0, "EndJob"), ("timeline -o t.json", 0, "t.json"), ("up", 0, "already running")),
    *(("simulate --from-journal", 1, NOT_THEIRS), ("simulate --from-journal --verify", 1, NOT_THEIRS)),
    *(
        ("calibrate", 5, "as the user who runs the daemon"),
        ("simulate --generate poisson:jobs=1", 0, "fair"),
        ("down", 5, ADMINISTRATORS),
    ),
    *(
        ("install-unit", 1, "use sudo"),
        ("events --kind CloseLane", 0, "a lane    closed"),
    ),
    *(
        ("install-unit --print", 0, "[Unit]"),
        ("doctor", None, "of root"),
        ("doctor --journal", 1, "may read the journal"),
    ),
    *(("doctor --report report.tar.gz", 0, "written"), ("backup copy", 5, OF_ROOT), ("completion bash", 0, "carpool")),
)


class User:
    """An ordinary user in a directory of the user's own."""

    def __init__(self, cli: Cli, directory: Path) -> None:
        self.cli, self._directory = cli, directory

    def __call__(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.cli(*words, cwd=self._directory, env={"HOME": str(self._directory), "PYTHONPATH": PATH, **env})


@pytest.fixture(scope="module")
def forks_of_user(python: str) -> Iterator[Forks]:
    with forking(environment_of_commands() | {"PYTHONPATH": PATH}, python, NOBODY) as forks:
        yield forks


@pytest.fixture(scope="module")
def user(forks: Forks, forks_of_user: Forks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """With a job that has ended."""
    with home_directory() as directory, stopped_afterwards(root := Cli(directory / "home", forks), root.home):
        directory.chmod(0o711)
        limited(root.home, "")
        root.ok("up", "--device", DEVICE)
        with tempfile.TemporaryDirectory(prefix="cp-", dir="/tmp") as own:
            os.chown(own, NOBODY, NOBODY)
            user = User(Cli(root.home, forks_of_user), Path(own))
            assert user("submit", "--name", "first", "--", "/bin/echo", "hi").stdout == "1\n"
            assert user("wait", "1").returncode == 0
            yield user


def test_every_command(user: User) -> None:
    for words, code, said in CALLS:
        check(user, words, code, said)


def check(user: User, words: str, code: int | None, said: str) -> None:
    first, *rest = words.split()
    group = [first, rest.pop(0)] if rest and first in ("model", "engine", "k8s", "kernel") else [first]
    done = user(*group, "--home", str(user.cli.home), *rest)
    assert code in (None, done.returncode) and said in done.stdout + done.stderr, done.stdout + done.stderr
    assert re.search(r"\buid \d", done.stderr) is None, "people have names"
    for wrong in ("Traceback", "damaged", "not readable", "None", "null", "set CARPOOL_HOME"):
        assert wrong not in done.stderr + ("" if "--json" in rest else done.stdout)


def test_all_commands_are_tried() -> None:
    assert {words.split()[0] for words, _, _ in CALLS} == set(COMMANDS)


@pytest.mark.parametrize("words", ["doctor", "submit -- /bin/true", "up", "ls"])
def test_where_roots_daemon_has_stopped_nobody_is_told_to_start_another_one(user: User, words: str) -> None:
    with home_directory() as directory:
        directory.chmod(0o711)
        limited(directory / "home", "")
        (directory / "home" / "journal.sqlite").touch(0o600)
        done = user(*words.split(), CARPOOL_HOME=str(directory / "home"))
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode and "set CARPOOL_HOME" not in said
    assert words == "ls" or "an administrator starts the daemon" in said


def test_common_options_may_come_before_the_command(user: User) -> None:
    nowhere = {"CARPOOL_HOME": "/nowhere"}
    for words in ("ls", "model ls", "model", "events"):
        assert user("--home", str(user.cli.home), *words.split(), **nowhere).returncode == 0
    assert user("--json", "ls").stdout == user("ls", "--json").stdout
    assert "{" in user("--json", "model", "ls").stdout
    assert user("--home", "/nowhere", "ls", "--home", str(user.cli.home)).returncode == 0
    assert user("--home", "/nowhere", "model", "ls").returncode == 3
