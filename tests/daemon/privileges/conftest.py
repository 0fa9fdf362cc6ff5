"""Daemons with a user of their own, and helpers alone: for root only."""

from __future__ import annotations

import os
import site
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.users import python
from tests.daemon.daemon_harness import Daemon
from tests.daemon.forks import SOURCE, start
from tests.homes import home_directory

__all__ = ["python"]

#: A user of the daemon's own, without an account.
CORE = 64001
OTHER = 64002


#: For an interpreter that other users may read.
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(SOURCE), *site.getsitepackages()]), "PYTHONDONTWRITEBYTECODE": "1"}


def carpool(python: str, home: Path, *words: str, **who: Any) -> subprocess.CompletedProcess[str]:
    """The command line, as root or as another user."""
    env = {"PATH": "/usr/bin:/bin", "CARPOOL_HOME": str(home)} | ENVIRONMENT
    command = [python, "-P", "-m", "carpool.cli", *words]
    return subprocess.run(command, env=env, cwd=home.parent, capture_output=True, text=True, check=False, **who)


def status_of(pid: int) -> dict[str, str]:
    """What the kernel says of a process, by the names of `proc(5)`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class UserDaemon(Daemon):
    """``carpool up --user``: a process of its own, with an interpreter that other users may read."""

    def __init__(self, python: str, home: Path) -> None:
        super().__init__(home, "--device", "host:64MiB", "--user", str(CORE))
        self.python_path = python
        self.started_by: dict[str, Any] = {}  # root, unless it says another user

    def launched(self, arguments: list[str], ready: int) -> Any:
        if not self.started_by:
            return start(arguments, self.constants, ready, self.python_path, ENVIRONMENT)
        return subprocess.Popen(
            [self.python_path, "-P", "-m", "carpool.daemon", *arguments, "--ready-fd", str(ready)],
            env=os.environ | ENVIRONMENT,
            pass_fds=(ready,),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
            **self.started_by,
        )


@pytest.fixture
def home() -> Iterator[Path]:
    """Others may pass through to it."""
    with home_directory() as directory:
        directory.chmod(0o711)
        yield directory / "home"


@pytest.fixture
def daemon(python: str, home: Path) -> Iterator[UserDaemon]:
    daemon = UserDaemon(python, home).started()
    yield daemon
    daemon.stop()
    assert "Traceback" not in daemon.log(), daemon.log()
