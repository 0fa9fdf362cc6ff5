"""Fixtures: a short home (socket paths are limited), the stand-in daemon, and the real command as a process.

A command is a fork of a process that has imported it already, and so is a daemon, where nothing depends on how its
process began.
"""

from __future__ import annotations

import json
import marshal
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.standin import StandIn
from tests.live import python_path

#: Less than a whole test may take; a busy machine needs a lot of it.
PATIENCE_S = 240.0
SOURCE = Path(__file__).parents[2] / "src"


@contextmanager
def short_home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cp-", dir="/tmp") as directory:
        yield Path(directory) / "home"


@pytest.fixture
def home() -> Iterator[Path]:
    with short_home() as home:
        yield home


@pytest.fixture
def standin(home: Path) -> Iterator[StandIn]:
    with StandIn(home) as standin:
        yield standin


def heed_the_terminal() -> None:
    """In a new process: the terminal's keys mean what they always do, whatever the tests' own process ignores."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


class Forks:
    """A process whose forks are commands (`forked.py`), of another user if there is a ``uid``."""

    def __init__(
        self,
        environment: Mapping[str, str],
        directory: Path,
        python: str = sys.executable,
        uid: int | None = None,
    ) -> None:
        self._socket = directory / "socket"
        self._output = (directory / "stdout", directory / "stderr")
        program = [python, "-P", str(Path(__file__).with_name("forked.py")), str(self._socket)]
        program += [] if uid is None else [str(uid)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(program, env=environment, text=True, **pipes)  # type: ignore[call-overload]
        assert self._process.stdout.readline() == "ready\n"

    def command(self, *arguments: str) -> list[str]:
        """For whoever starts processes: one that is there as long as the command, and hears its signals for it."""
        client = Path(__file__).with_name("forked_client.py")
        return [sys.executable, "-IS", str(client), str(self._socket), *arguments]

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], directory: Path | None
    ) -> subprocess.CompletedProcess[str]:
        """If the test takes too long meanwhile, the command ends with its socket."""
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(str(self._socket))
            self._hand_over(server)
            where = None if directory is None else str(directory)
            server.sendall(marshal.dumps(([*map(str, arguments)], dict(environment), where)))
            with server.makefile() as answers:
                _pid, code = answers
        return subprocess.CompletedProcess(arguments, int(code), *(path.read_text() for path in self._output))

    def _hand_over(self, server: socket.socket) -> None:
        """No input, and files for the output."""
        with open(os.devnull) as nothing, self._output[0].open("w") as output, self._output[1].open("w") as errors:
            socket.send_fds(server, [b"!"], [each.fileno() for each in (nothing, output, errors)])

    def close(self) -> None:
        self._process.communicate()


def environment_of_commands() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("CARPOOL")}
    return own | {"PYTHONPATH": python_path(SOURCE), "PYTHONDONTWRITEBYTECODE": ""}


@contextmanager
def forking(environment: Mapping[str, str], *whose: Any) -> Iterator[Forks]:
    """``whose``: the interpreter and the user, if they are others."""
    with tempfile.TemporaryDirectory(prefix="cp-", dir="/tmp") as directory:
        forks = Forks(environment, Path(directory), *whose)
        yield forks
        forks.close()


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with forking(environment_of_commands()) as forks:
        yield forks


class Cli:
    """Runs ``carpool`` as users do, as a process: without ``forks`` it and its daemon begin with an interpreter."""

    def __init__(self, home: Path, forks: Forks | None = None) -> None:
        self.home = home
        self.env = environment_of_commands() | {"CARPOOL_HOME": str(home)}
        self._forks = forks

    def command(self, *arguments: str) -> list[str]:
        """A program of its own."""
        return [sys.executable, "-P", "-m", "carpool.cli", *arguments]

    def quickest(self, *arguments: str) -> list[str]:
        """A program that does the same."""
        return self.command(*arguments) if self._forks is None else self._forks.command(*arguments)

    def __call__(
        self, *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = self.env | (env or {})
        if self._forks is not None:
            return self._forks.run(arguments, environment, cwd)
        return subprocess.run(
            self.command(*arguments),
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
        )

    def ok(self, *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
        """Standard output of a command that must succeed."""
        result = self(*arguments, cwd=cwd, env=env)
        assert result.returncode == 0, (arguments, result.stdout, result.stderr)
        return result.stdout

    def fails(self, code: int, *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
        """Standard error of a command that must end with this exit code."""
        result = self(*arguments, cwd=cwd, env=env)
        assert result.returncode == code, (arguments, result.stdout, result.stderr)
        return result.stderr

    def submit(self, *words: str, **options: Any) -> str:
        """Submit a job, or an array, and return its id."""
        return self.ok("submit", *words, **options).strip()

    def show(self, job: object) -> dict[str, Any]:
        """All facts about a job."""
        facts: dict[str, Any] = json.loads(self.ok("show", str(job), "--json"))
        return facts

    def start(self, arguments: Sequence[str], **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(self.quickest(*arguments), env=self.env, text=True, **options)  # type: ignore[call-overload]


@pytest.fixture
def carpool(home: Path, forks: Forks) -> Cli:
    return Cli(home, forks)


@pytest.fixture
def own_daemon(carpool: Cli, home: Path) -> Iterator[Cli]:
    """The command for a daemon of the test's own, which may kill it."""
    from tests.cli.real import DEVICE, SHORT_PAUSE, limited, stopped_afterwards  # which imports this file

    with stopped_afterwards(carpool, home):
        limited(home, SHORT_PAUSE)
        carpool.ok("up", "--device", DEVICE)
        yield carpool


@pytest.fixture(scope="module")
def shared(forks: Forks) -> Iterator[Cli]:
    """The command for a daemon that a module's tests use, none of which leaves a job to the next."""
    from tests.cli.real import DEVICE, shared_daemon  # which imports this file

    with shared_daemon(forks, "--device", DEVICE) as cli:
        yield cli
