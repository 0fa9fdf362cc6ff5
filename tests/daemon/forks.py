"""Daemons as forks of a process that has imported the daemon (`forked.py`), for tests that start hundreds of them.

The daemons of `tests/e2e`, `tests/cuda` and those that ``carpool up`` starts in `tests/cli/test_end_to_end.py` begin as
users' do, with an interpreter of their own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from carpool.protocol.packets import readable
from tests.leftovers import kept
from tests.live import python_path

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROGRAM = Path(__file__).with_name("forked.py")


class ForkedDaemon:
    """What tests use of `subprocess.Popen`, of a daemon that is a fork.

    Owns ``told``, where its number and its exit code can be read, and ``error``, its standard error.
    """

    def __init__(self, told: int, error: int | None = None) -> None:
        self.stderr = None if error is None else os.fdopen(error, "rb")
        self._told = os.fdopen(told, "rb", buffering=0)
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not readable(self._told.fileno(), timeout):
                raise subprocess.TimeoutExpired("carpool.daemon", timeout or 0.0)
            with self._told:
                self.returncode = int(self._told.readline())
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """A process that forks."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [python, "-P", str(PROGRAM)]
            self._process = subprocess.Popen(command, env=environment, stdin=theirs, cwd="/")
        kept.add(self._process.pid)  # until the end of the run, when its socket is closed

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], constants: Mapping[str, object], ready: int
    ) -> ForkedDaemon:
        """The daemon writes into ``ready``, which stays the caller's."""
        (error, theirs), (told, tells) = os.pipe(), os.pipe()
        request = json.dumps([arguments, environment, constants]).encode()
        socket.send_fds(self._requests, [request], [theirs, ready, tells])
        os.close(theirs)
        os.close(tells)
        return ForkedDaemon(told, error)


@cache
def _forks(python: str, at_start: frozenset[tuple[str, str]]) -> Forks:
    """One for each of what the interpreter and the dynamic linker read when a process starts."""
    return Forks(python, {**os.environ, **dict(at_start)})


def start(
    arguments: Sequence[str],
    constants: Mapping[str, object],
    ready: int,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> ForkedDaemon:
    """A daemon, with the environment of the tests.  It writes into ``ready``, which stays the caller's.

    ``constants``: what of its modules is to have another value, by names with the module's; ``python``: another
    interpreter; ``environment``: what such a one needs besides.
    """
    environment = os.environ | (environment or {"PYTHONPATH": python_path(SOURCE)})
    at_start = {name: value for name, value in environment.items() if name.startswith(("LD_", "PYTHON"))}
    return _forks(python, frozenset(at_start.items())).start(arguments, environment, constants, ready)
