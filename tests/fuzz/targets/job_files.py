"""Files that users write: how a job has ended, files of jobs, limits and checks of predictions of a daemon."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from carpool.cli.base.cli_error import Problem
from carpool.cli.request.job_file import read_job_file
from carpool.daemon.config.limits import read_limits
from carpool.daemon.jobs.files import ExitRecord, read_exit
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.daemon.seats.record import usage_at_end, words_at_end
from carpool.daemon.system.errors import StartupError
from carpool.protocol.paths import Home, JobFiles
from carpool.protocol.predictions import DamagedChecks, check_words, checks_text, read_checks


def _in_file(data: bytes, name: str, check: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "jobs" / "1" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        check(path)


def exit_record(data: bytes) -> None:
    """Written by a shim, which runs as the job's owner: nothing, or a record."""

    def check(path: Path) -> None:
        found = read_exit(DirectPrivileges(Home(path.parents[2])), JobFiles(path.parent), os.geteuid())
        if found is None:
            return
        words = words_at_end(found.seat)
        if words is not None:
            usage_at_end(words)
        assert msgspec.json.decode(msgspec.json.encode(found), type=ExitRecord) == found

    _in_file(data, "exit.json", check)


def limits(data: bytes) -> None:
    """limits.toml: either each value is a possible one, or the daemon says what is wrong with which."""

    def check(path: Path) -> None:
        with suppress(StartupError):
            assert read_limits(Home(path.parent)).jobs >= 1

    _in_file(data, "limits.toml", check)


def job_file(data: bytes) -> None:
    """A file with jobs, for `carpool submit`."""

    def check(path: Path) -> None:
        with suppress(Problem):
            read_job_file(path)

    _in_file(data, "jobs.toml", check)


def predictions(data: bytes) -> None:
    """predictions.jsonl of another user's daemon: checks that can be put into words, or an error."""

    def check(path: Path) -> None:
        with suppress(DamagedChecks):
            found = read_checks(path)
            assert all(map(check_words, found))
            path.write_bytes(checks_text(found))
            assert read_checks(path) == found

    _in_file(data, "predictions.jsonl", check)
