"""`carpool history`: rows of ended jobs, what is selected, and the three forms."""

from __future__ import annotations

import csv
import json
import os

import pytest

from carpool.cli.render.history import used_by
from carpool.protocol.api import AttemptInfo
from tests.cli.conftest import Cli
from tests.cli.standin import StandIn, as_json, job

HOUR = 3_600_000_000


def ended(number: int, **facts: object) -> object:
    times = {
        "submitted_us": 0,
        "started_us": HOUR,
        "ended_us": 3 * HOUR,
        "device_us": HOUR,
        "used_us": HOUR,
        "owner": os.getuid(),
    }
    return job(number, **{"phase": "ended", "outcome": "succeeded", "exit_code": 0} | times | facts)


def attempt(number: int, start: int, end: int) -> AttemptInfo:
    return AttemptInfo(number, "host0", start * HOUR, end * HOUR, 1, None, "no", 0, 0, "log")


def test_figures_of_a_job() -> None:
    use = used_by(ended(1, gpus=2, used_us=2 * HOUR, persistent_bytes=3, ephemeral_bytes=4))  # type: ignore[arg-type]
    assert (use.waited_us, use.ran_us, use.device_hours) == (HOUR, 2 * HOUR, 2.0)
    assert (use.idle_ppm, use.peak_bytes) == (500_000, 7)


def test_all_attempts_count_and_a_job_that_never_ran_has_none() -> None:
    again = used_by(ended(1, started_us=2 * HOUR, attempts=[attempt(1, 0, 1), attempt(2, 2, 3)]))  # type: ignore[arg-type]
    assert (again.waited_us, again.ran_us, again.idle_ppm) == (HOUR, 2 * HOUR, 0)
    never = used_by(ended(2, started_us=None, outcome="cancelled", device_us=0, used_us=0))  # type: ignore[arg-type]
    assert (never.waited_us, never.ran_us, never.device_hours, never.idle_ppm) == (3 * HOUR, 0, 0.0, None)


@pytest.fixture
def kept(standin: StandIn, carpool: Cli) -> Cli:
    jobs = [
        ended(1, name="train, all"),
        ended(2, name="test", outcome="failed", exit_code=3, ended_us=2 * HOUR),
        ended(3, name="other", owner=os.getuid() + 1),
    ]
    import msgspec

    standin.reactions["GET /v1/jobs"] = as_json({"jobs": json.loads(msgspec.json.encode(jobs))})
    return carpool


def ids(cli: Cli, *options: str) -> list[int]:
    return [use["id"] for use in json.loads(cli.ok("history", "--json", *options))["jobs"]]


def test_jobs_are_selected(kept: Cli) -> None:
    assert ids(kept) == [2, 1], "in the order in which they ended"
    assert ids(kept, "--user", "*") == [2, 1, 3]
    assert ids(kept, "--state", "failed") == ids(kept, "--name", "te*") == [2]
    assert ids(kept, "-n", "1") == [1] and ids(kept, "--since", "1h") == []
    assert "no state 'fail'" in kept("history", "--state", "fail").stderr


def test_forms(kept: Cli) -> None:
    lines = kept.ok("history").splitlines()
    assert lines[-1] == "2 jobs: 2.000 device-hours, waited 1h00m on average"
    rows = list(csv.DictReader(kept.ok("history", "--csv").splitlines()))
    assert [(row["name"], row["device_hours"], row["state"]) for row in rows] == [
        ("test", "1.0", "failed (3)"),
        ("train, all", "1.0", "succeeded"),
    ]
