"""Fixtures: a short home (socket paths are limited), the stand-in daemon, and the real command as a process.

A command is a fork of a process that has imported it already, where nothing depends on how its process began.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helper modules beside the tests

from standin import StandIn

from emulator.build import build_nvml
from tests.live import python_path

#: Less than a whole test may take; a busy machine needs a lot of it.
PATIENCE_S = 240.0
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml"))


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
    """A process whose forks are commands (`forked.py`)."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self._output = (directory / "stdout", directory / "stderr")
        program = [sys.executable, "-P", str(Path(__file__).with_name("forked.py"))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(program, env=environment, text=True, bufsize=1, **pipes)  # type: ignore[call-overload]

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], directory: Path | None
    ) -> subprocess.CompletedProcess[str]:
        for path in self._output:
            path.write_text("")
        request = [arguments, environment, directory, *self._output]
        print(json.dumps(request, default=str), file=self._process.stdin)
        pid = self._number()
        try:
            code = self._number()
        except BaseException:  # the test has taken too long: the next one begins with a new line
            os.kill(pid, signal.SIGKILL)
            self._number()
            raise
        return subprocess.CompletedProcess(arguments, code, *(path.read_text() for path in self._output))

    def _number(self) -> int:
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def environment_of_commands() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("CARPOOL")}
    return own | {"PYTHONPATH": python_path(SOURCE), "PYTHONDONTWRITEBYTECODE": ""}


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    forks = Forks(environment_of_commands(), tmp_path_factory.mktemp("forks"))
    yield forks
    forks.close()


class Cli:
    """Runs ``carpool`` as users do, as a process: without ``forks`` one of its own from the beginning."""

    def __init__(self, home: Path, forks: Forks | None = None) -> None:
        self.home = home
        self.env = environment_of_commands() | {"CARPOOL_HOME": str(home)}
        self._forks = forks

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "carpool.cli", *arguments]

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

    def start(self, arguments: Sequence[str], **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command(*arguments), env=self.env, text=True, **options)  # type: ignore[call-overload]


@pytest.fixture
def carpool(home: Path, forks: Forks) -> Cli:
    return Cli(home, forks)
