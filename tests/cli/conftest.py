"""Fixtures: a short home (socket paths are limited), the stand-in daemon, and the real command as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helper modules beside the tests

from standin import StandIn

from tests.live import python_path

#: Less than a whole test may take; a busy machine needs a lot of it.
PATIENCE_S = 240.0
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cp-", dir="/tmp") as directory:
        yield Path(directory) / "home"


@pytest.fixture
def standin(home: Path) -> Iterator[StandIn]:
    with StandIn(home) as standin:
        yield standin


def heed_the_terminal() -> None:
    """In a new process: the terminal's keys mean what they always do, whatever the tests' own process ignores."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


class Cli:
    """Runs ``carpool`` as users do: as a process, with pipes for its output."""

    def __init__(self, home: Path) -> None:
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("CARPOOL")}
        self.env |= {"CARPOOL_HOME": str(home), "PYTHONPATH": python_path(SOURCE), "PYTHONDONTWRITEBYTECODE": ""}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "carpool.cli", *arguments]

    def __call__(
        self, *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=cwd,
            env=self.env | (env or {}),
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
def carpool(home: Path) -> Cli:
    return Cli(home)
