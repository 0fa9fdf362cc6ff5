"""Daemons that users attack who are not the daemon's: real ones, of root, whose home others may pass through.

A test that is parametrized with ``daemon`` (indirect, `separated`) has one with a user of its own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adversary.users import ATTACKER, User, python
from tests.daemon.daemon_harness import Daemon
from tests.daemon.privileges.conftest import UserDaemon
from tests.homes import home_directory

__all__ = ["python"]


@pytest.fixture
def daemon(request: pytest.FixtureRequest, python: str) -> Iterator[Daemon]:
    with home_directory() as directory:
        directory.chmod(0o711)
        home, separated = directory / "home", getattr(request, "param", "") == "separated"
        daemon = UserDaemon(python, home) if separated else Daemon(home, "--device", "host:64MiB")
        daemon.hurry("memory.overuse.INTERVAL_S", to=0.2).started()
        yield daemon
        daemon.stop()
        assert "Traceback" not in daemon.log(), daemon.log()


@pytest.fixture
def programs() -> Iterator[Path]:
    """`raw.py`, where other users may read it."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        shutil.copy(Path(__file__).with_name("raw.py"), directory)
        yield Path(directory) / "raw.py"


@pytest.fixture
def victim(daemon: Daemon, python: str, programs: Path) -> User:
    return User(daemon, ATTACKER - 1, python, programs)


@pytest.fixture
def attacker(daemon: Daemon, python: str, programs: Path) -> User:
    return User(daemon, ATTACKER, python, programs)
