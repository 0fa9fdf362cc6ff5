"""The daemon's home: who has its lock, and for how long somebody waits for that."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from carpool.daemon.home import prepare_home
from carpool.daemon.system.errors import StartupError
from carpool.protocol.paths import Home


@contextmanager
def locked(home: Home, pid: int) -> Iterator[subprocess.Popen[bytes]]:
    """By a child of the daemon ``pid``, which has inherited its descriptors, until the child's input ends."""
    with home.pid_file.open("w") as lock:
        print(pid, file=lock, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock.fileno(),))
    with child:
        yield child


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_the_lock_of_a_killed_daemon_is_waited_for(home: Home) -> None:
    """It was killed while it started a process, which has the lock until it executes its program."""
    with subprocess.Popen(["true"]) as killed:
        killed.wait()
    with locked(home, killed.pid) as child:
        assert child.stdin is not None
        threading.Timer(0.2, child.stdin.close).start()
        os.close(prepare_home(home, shared=True))
    assert home.pid_file.read_text() == f"{os.getpid()}\n"


def test_that_of_a_daemon_that_lives_is_not(home: Home) -> None:
    with locked(home, os.getpid()), pytest.raises(StartupError, match=f"pid {os.getpid()}") as caught:
        prepare_home(home, shared=True)
    assert caught.value.info.code == "already_running"
