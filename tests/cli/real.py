"""Real daemons in tests: given a short home, stopped with their jobs whatever happens."""

from __future__ import annotations

import os
import select
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cli.conftest import Cli, Forks, short_home

DEVICE = "host:64MiB"
#: For `limited`: a retry waits for a second otherwise.
SHORT_PAUSE = 'retry_pause = "10ms"\n'


@contextmanager
def stopped_afterwards(cli: Cli, home: Path) -> Iterator[None]:
    """Whatever daemon comes to life in ``home`` is gone at the end, and its jobs with it."""
    try:
        yield
    finally:
        result = cli("down", "--stop-jobs")
        if result.returncode != 0:
            _kill(home)
            raise AssertionError(f"the daemon could not be stopped in order: {result.stderr}")


def limited(home: Path, limits: str) -> None:
    """A daemon that is still to be started reads it."""
    home.mkdir(mode=0o711)
    (home / "limits.toml").write_text(limits)


@contextmanager
def shared_daemon(forks: Forks, *options: str, limits: str = "") -> Iterator[Cli]:
    """The command for a daemon that several tests use, none of which leaves a job to the next."""
    with short_home() as home, stopped_afterwards(cli := Cli(home, forks), home):
        limited(home, limits)
        cli.ok("up", *options)
        yield cli


def daemon_pid(home: Path) -> int:
    return int((home / "daemon.pid").read_text())


def _kill(home: Path) -> None:
    with suppress(OSError, ValueError):
        kill_and_wait(daemon_pid(home))


def kill_and_wait(pid: int) -> None:
    """SIGKILL, and wait until the process is gone."""
    fd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(10_000), f"process {pid} does not die"
    finally:
        os.close(fd)


def command_on_path(cli: Cli, directory: Path) -> None:
    """Put ``carpool`` into ``directory``, for shell scripts, whether or not the package is installed."""
    script = directory / "carpool"
    script.write_text("#!/bin/sh\nexec " + " ".join(cli.quickest()) + ' "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
