"""`ls`, `show` and `logs` where no daemon runs: read from the journal, which stays as it is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.real import daemon_pid, kill_and_wait


@pytest.fixture
def killed(own_daemon: Cli) -> Cli:
    """A daemon that was killed beside a job that has ended and one that waits."""
    done = own_daemon.submit("--name", "greets", "--", "sh", "-c", "echo hello; echo world")
    assert own_daemon("wait", done).returncode == 0
    own_daemon.ok("submit", "--name", "waits", "--hold", "--", "true")
    kill_and_wait(daemon_pid(own_daemon.home))
    return own_daemon


def contents(home: Path) -> dict[str, str]:
    """Of the journal and its log, and which files there are."""
    files = {path.name: path for path in home.iterdir() if path.is_file()}
    kept = {
        name: hashlib.sha256(files[name].read_bytes()).hexdigest() for name in files if name != "journal.sqlite-shm"
    }
    assert {"journal.sqlite", "journal.sqlite-wal"} <= kept.keys(), "the log of a killed daemon is what is tested"
    return kept


def test_a_killed_daemons_jobs_are_read_from_its_journal(killed: Cli, home: Path) -> None:
    before = contents(home)
    listed = killed("ls")
    assert listed.returncode == 3
    assert "greets" in listed.stdout and "waits" in listed.stdout
    assert f"the daemon of {home} is not running; this is its journal as of 2" in listed.stderr
    answer = json.loads(killed("ls", "--json", "--state", "ended").stdout)
    assert [job["name"] for job in answer["jobs"]] == ["greets"] and "not running" in answer["notice"]
    shown = killed("show", "@~1")
    assert shown.returncode == 3 and "succeeded" in shown.stdout and "not running" in shown.stderr
    logs = killed("logs", "greets")
    assert (logs.returncode, logs.stdout) == (3, "hello\nworld\n") and "not running" in logs.stderr
    assert killed("logs", "-n", "1", "-f", "1").stdout == "world\n"
    assert contents(home) == before
    assert killed("cancel", "waits").returncode == 3, "only looking works without a daemon"
    assert "the journal has no job 7" in killed.fails(4, "show", "7")
    assert "no attempt 5" in killed("logs", "--attempt", "5", "1").stderr
    assert "no daemon is running" in killed("show", "--why", "1").stderr


def test_only_the_homes_user_reads_the_journal(carpool: Cli, home: Path) -> None:
    """And without one nothing is made."""
    home.mkdir()
    assert "no daemon is running" in carpool.fails(3, "ls")
    assert list(home.iterdir()) == []


def test_a_broken_journal_is_no_list(carpool: Cli, home: Path) -> None:
    home.mkdir()
    (home / "journal.sqlite").write_bytes(b"no database " * 1000)
    result = carpool.fails(1, "ls")
    assert "cannot be read" in result and "doctor --journal" in result
