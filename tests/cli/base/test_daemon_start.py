"""Starting the daemon: what is said of its devices, and of a daemon that ends without a word."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from carpool.cli.base.daemon_start import StartupFailed, _open_log, _silent, start_daemon
from carpool.protocol.paths import Home
from tests.cli.conftest import Cli
from tests.cli.real import stopped_afterwards
from tests.devices.cuda_stub import Stub, stub

__all__ = ["stub"]


def test_a_daemon_that_is_just_ending_was_not_too_slow(tmp_path: Path) -> None:
    (tmp_path / "daemon.log").write_text("its last words\n")
    failed = _silent(subprocess.Popen(["sh", "-c", "exit 3"]), Home(tmp_path))
    assert failed.info.message == "the daemon exited during start-up (exit code 3)"
    assert failed.info.hint.endswith("its last words")


def test_a_fifo_in_the_place_of_the_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "daemon.log")
    with pytest.raises(StartupFailed) as failed:
        start_daemon(tmp_path, ())
    assert "daemon.log" in failed.value.info.message and "not a regular file" in failed.value.info.message


def test_a_new_home_has_its_mode_whatever_the_umask_is(tmp_path: Path) -> None:
    """Users of a daemon of root's pass through it."""
    before = os.umask(0o077)
    try:
        _open_log(Home(tmp_path / "home")).close()
    finally:
        os.umask(before)
    assert (tmp_path / "home").stat().st_mode & 0o777 == (0o711 if os.geteuid() == 0 else 0o700)


def test_the_first_submission_says_which_gpus_it_has_taken(stub: Stub, carpool: Cli, home: Path) -> None:
    with stopped_afterwards(carpool, home):
        first, second = (carpool("submit", "--", "true") for _ in range(2))
    assert first.stdout.strip().isdecimal(), "standard output is for scripts"
    assert first.stderr == "carpool: using the NVIDIA GPUs of this machine: cuda0 of 224 MiB\n"
    assert second.stderr == ""


def test_up_says_that_there_is_no_gpu(carpool: Cli, home: Path) -> None:
    with stopped_afterwards(carpool, home):
        assert "carpool: no NVIDIA GPU found, sharing host memory: host0 of " in carpool("up").stderr
