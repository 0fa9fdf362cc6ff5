"""Fixtures of the daemon's tests: real daemons, each in its own home, none left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tests.daemon.daemon_harness import Daemon
from tests.daemon.failing import pipe
from tests.daemon.rig import Client, Rig
from tests.devices.cuda_stub import stub
from tests.homes import home_directory

__all__ = ["pipe", "stub"]


@pytest.fixture
def home() -> Iterator[Path]:
    with home_directory() as directory:
        yield directory / "home"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory, too: many tests have a journal there without a daemon."""
    with home_directory() as directory:
        yield directory


@pytest.fixture
def make_daemon(home: Path) -> Iterator[Callable[..., Daemon]]:
    """Makes daemons (not started) and ends them, with all their jobs; none may have made a mistake."""
    made: list[Daemon] = []

    def make(*arguments: str, at: Path = home, limits: str = "") -> Daemon:
        """``limits``: the text of `limits.toml`."""
        if limits:
            at.mkdir(mode=0o711, exist_ok=True)
            (at / "limits.toml").write_text(limits)
        made.append(Daemon(at, *arguments))
        return made[-1]

    yield make
    for daemon in made:
        daemon.stop()
        if (daemon.home / "daemon.log").exists():
            assert "Traceback" not in daemon.log(), daemon.log()


@pytest.fixture
def daemon(make_daemon: Callable[..., Daemon]) -> Daemon:
    return make_daemon().started()


@pytest.fixture(scope="module")
def shared() -> Iterator[Daemon]:
    """One daemon for tests that change nothing."""
    with home_directory() as directory:
        daemon = Daemon(directory / "home").started()
        yield daemon
        daemon.stop()


@pytest.fixture
def first() -> Iterator[subprocess.Popen[bytes]]:
    """The process of a job that comes first to its seat; it lives until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """The daemon's parts around the seats of a host device."""
    made = Rig()
    yield made
    made.close()


@pytest.fixture
async def client(rig: Rig) -> Client:
    """A job with a seat, of user 1000."""
    return rig.attach()


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path
