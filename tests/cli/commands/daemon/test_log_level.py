"""Levels of the daemon's log at run time, and one id from the command through the daemon to the job."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import Cli, Forks
from tests.cli.real import DEVICE, daemon_pid, kill_and_wait, shared_daemon


@pytest.fixture(scope="module")
def shared(forks: Forks) -> Iterator[Cli]:
    with shared_daemon(forks, "--device", DEVICE, "--log-format", "json") as cli:
        yield cli


def log_of(cli: Cli, request: str) -> list[dict[str, Any]]:
    """The records of a request."""
    lines = map(json.loads, (cli.home / "daemon.log").read_text().splitlines())
    return [line for line in lines if line.get("request") == request]


def test_one_id_goes_from_the_command_to_the_log_the_job_and_the_next_daemon(shared: Cli) -> None:
    assert shared.ok("log-level", "debug", "--logger", "carpool.daemon.api") == (
        "info\naiohttp: warning\ncarpool.daemon.api: debug\n"
    )
    env = {"CARPOOL_REQUEST": "build-17.a"}
    job = shared.ok("submit", "--", "sh", "-c", "echo $CARPOOL_REQUEST", env=env).split()[-1]
    shared.ok("wait", job)
    assert shared.ok("logs", job) == "build-17.a\n"
    records = log_of(shared, "build-17.a")
    assert [each["message"] for each in records if "POST /v1/jobs:" in each["message"]] == ["POST /v1/jobs: status 201"]
    queued = shared.ok("submit", "--hold", "--", "true", env=env).split()[-1]
    kill_and_wait(daemon_pid(shared.home))
    shared.ok("up", "--device", DEVICE, "--log-format", "json")
    for number in (job, queued):
        assert shared.show(number)["request"] == "build-17.a"
    assert "carpool.daemon.api" not in shared.ok("log-level")  # the next daemon begins anew
    shared.ok("cancel", queued)


def test_each_command_makes_an_id_which_errors_for_programs_say(shared: Cli) -> None:
    ids = {json.loads(shared("show", "777", "--json").stderr)["request"] for _ in range(2)}
    assert len(ids) == 2 and all(re.fullmatch("[0-9a-f]{16}", each) for each in ids)
    assert "request" not in shared("show", "777").stderr


def test_an_id_that_is_none_is_refused(shared: Cli) -> None:
    for given in ("two words", "x" * 65, "ä"):
        refused = shared.fails(2, "ls", env={"CARPOOL_REQUEST": given})
        assert "is not the id of a request" in refused and "64" in refused


def test_who_changes_a_level_is_in_the_log_whatever_the_level(shared: Cli) -> None:
    env = {"CARPOOL_REQUEST": "quiet"}
    assert shared.ok("log-level", "error", env=env).splitlines()[0] == "error"
    assert json.loads(shared.ok("log-level", "--json"))["level"] == "error"
    shared.ok("log-level", "info", env=env)
    texts = [each["message"] for each in log_of(shared, "quiet")]
    assert [text.partition("sets ")[2] for text in texts] == [
        "the log level of root to error",
        "the log level of root to info",
    ]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("verbose",), "there is no level 'verbose'"),
        (("debug", "--logger", "carpool.daemon.apo"), "carpool.daemon.api"),
        (("inherit",), "no other to inherit from"),
        (("--logger", "carpool"), "carpool log-level LEVEL --logger NAME"),
    ],
)
def test_what_there_is_not_is_an_error(shared: Cli, words: tuple[str, ...], text: str) -> None:
    assert text in shared.fails(2, "log-level", *words)


def test_a_logger_goes_back_to_the_level_of_all(shared: Cli) -> None:
    assert "carpool.daemon.loop: debug" in shared.ok("log-level", "debug", "--logger", "carpool.daemon.loop")
    assert "carpool.daemon.loop" not in shared.ok("log-level", "inherit", "--logger", "carpool.daemon.loop")
