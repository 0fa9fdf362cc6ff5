"""``carpool simulate --check``: a real daemon's jobs beside their simulation, and what is kept of that."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carpool.cli.base.doctor_checks import predictions_check
from carpool.cli.main import main
from carpool.protocol.paths import Home
from carpool.protocol.predictions import FEWEST_JOBS, NONE_YET, check_words, read_checks
from tests.daemon.daemon_harness import NOBODY, Daemon
from tests.daemon.journal_file import sql

ROUNDS = ("attach", "rounds:20")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Jobs that have ended, one that was cancelled, one that waited for another; then the policy was changed."""
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        made = Daemon(Path(directory) / "home", "--device", "host:64MiB", "--policy", "srtf").started()
        made.home.parent.chmod(0o755)
        jobs = [made.fake(*ROUNDS, name=f"n{number}") for number in range(FEWEST_JOBS)]
        jobs.append(made.submit("true", after=jobs[:1]))
        for job in jobs:
            assert made.wait(job)["outcome"] == "succeeded"
        made.cancelled(made.python("import signal; signal.pause()", until="ProcessStarted"))
        made.put("/v1/policy", {"name": "fair"})
        yield made
        made.stop()


@pytest.fixture(autouse=True)
def unchecked(daemon: Daemon) -> Path:
    """The file, which is not there yet."""
    path = Home(daemon.home).predictions
    path.unlink(missing_ok=True)
    return path


def checked(daemon: Daemon, *options: str) -> Any:
    assert main(["simulate", "--check", "--home", str(daemon.home), *options]) == 0


def test_the_jobs_are_compared_and_the_figures_are_kept(
    daemon: Daemon, unchecked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predictions_check(Home(daemon.home)).found == NONE_YET
    checked(daemon, "--json")
    answer = json.loads(capsys.readouterr().out)
    (kept,) = read_checks(unchecked)
    assert (answer["jobs"], answer["policy"], answer["devices"]) == (FEWEST_JOBS, "srtf", 1)
    assert answer["left_out"] == {"waited for other jobs or for a time": 1, "were cancelled or lost": 1}
    assert answer["real_mean_s"] == kept.real_mean_s > 0 and kept.predicted_mean_s > 0
    times = [daemon.show(job) for job in range(1, FEWEST_JOBS + 1)]
    real = sum(job["ended_us"] - job["submitted_us"] for job in times) / FEWEST_JOBS / 1e6
    assert kept.real_mean_s == pytest.approx(real)
    assert len(answer["worst"]) == 3 and {job["job"] for job in answer["worst"]} <= set("12345")
    assert unchecked.stat().st_mode & 0o777 == 0o644
    shown = predictions_check(Home(daemon.home))
    assert shown.ok and shown.found == check_words(kept)


def test_a_second_check_of_a_day_takes_the_place_of_the_first(daemon: Daemon, unchecked: Path) -> None:
    checked(daemon)
    (first,) = read_checks(unchecked)
    checked(daemon)
    (second,) = read_checks(unchecked)
    assert second.until_us > first.until_us


def test_people_read_sentences(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    checked(daemon)
    said = capsys.readouterr().out
    assert f"the mean completion time of {FEWEST_JOBS} jobs from 20" in said and "was predicted to" in said
    assert "not compared: 1 that waited for other jobs or for a time, 1 that were cancelled or lost" in said
    assert "as under policy srtf, placement magm, on 1 device" in said


def test_few_jobs_say_little_and_are_not_kept(
    daemon: Daemon, unchecked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = daemon.show(FEWEST_JOBS)["submitted_us"]
    ago = (sql(daemon.home / "journal.sqlite", "SELECT max(wall_us) FROM events")[0][0] - last) / 1e6
    assert ago > 0
    journal = str(daemon.home / "journal.sqlite")
    checked(daemon, "--from-journal", journal)
    assert not unchecked.exists(), "a named journal may be a copy"
    assert main(["simulate", "--check", "--home", str(daemon.home), "--since", "0s"]) == 1
    assert "there is no job to compare" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--policy", "fair"), ("--devices", "2"), ("--resolution", "0"), ("--verify",)])
def test_the_journal_says_the_rest(daemon: Daemon, option: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--check", "--home", str(daemon.home), *option]) == 2
    assert f"leave {option[0]} out" in capsys.readouterr().err


def test_a_damaged_file_is_named_and_left_alone(
    daemon: Daemon, unchecked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unchecked.write_text('{"jobs": 0}\n')
    assert main(["simulate", "--check", "--home", str(daemon.home)]) == 1
    said = capsys.readouterr()
    assert "was predicted to" in said.out and "remove that line, or the file" in said.err
    assert unchecked.read_text() == '{"jobs": 0}\n'
    shown = predictions_check(Home(daemon.home))
    assert not shown.ok and shown.advice == "remove that line, or the file" and "line 1" in shown.found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give the journal to another user")
def test_only_the_daemons_user_keeps_checks(
    daemon: Daemon, unchecked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: NOBODY)
    checked(daemon)
    assert not unchecked.exists() and "only the daemon's own user" in capsys.readouterr().err
