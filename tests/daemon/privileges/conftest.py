"""Daemons with a user of their own, and helpers alone: for root only."""

from __future__ import annotations

import json
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


class UserDaemon(Daemon):
    """``carpool up --user``: a process of its own, with an interpreter that other users may read."""

    def __init__(self, python: str, home: Path) -> None:
        super().__init__(home, "--device", "host:64MiB", "--user", str(CORE))
        self.python_path = python
        self.started_by: dict[str, Any] = {}  # root, unless it says another user

    def start(self) -> dict[str, Any]:
        read_end, write_end = os.pipe()
        arguments = ["--home", str(self.home), *self.arguments]
        path = os.pathsep.join([str(SOURCE), *site.getsitepackages()])
        environment = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        if self.started_by:
            process: Any = self._of_user(arguments, environment, write_end)
        else:
            process = start(arguments, self.constants, write_end, self.python_path, environment)
        os.close(write_end)
        self.process = process  # type: ignore[assignment] - what tests use of it is the same
        with open(read_end, "rb") as pipe:
            line = pipe.readline()
        if not line:
            assert process.stderr is not None
            raise AssertionError(f"the daemon died: {process.stderr.read().decode()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _of_user(self, arguments: list[str], environment: dict[str, str], ready: int) -> subprocess.Popen[bytes]:
        """Started by another user than root."""
        return subprocess.Popen(
            [self.python_path, "-P", "-m", "carpool.daemon", *arguments, "--ready-fd", str(ready)],
            env=os.environ | environment,
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
