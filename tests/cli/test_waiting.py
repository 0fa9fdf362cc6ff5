"""wait, cancel, logs, policy and completion against the stand-in."""

from __future__ import annotations

import json

import msgspec
import pytest

from carpool.cli.commands.daemon.policy import OF_PAPERS
from carpool.core.policies import available_policies
from carpool.core.policies.placement import available_placements
from carpool.protocol.api import JobInfo
from tests.cli.conftest import Cli
from tests.cli.standin import Answer, StandIn, as_json, ended, job, problem


def present(standin: StandIn, *jobs: JobInfo) -> None:
    for info in jobs:
        answer = Answer(msgspec.json.encode(info))
        standin.reactions |= {f"GET /v1/jobs/{info.id}": answer, f"GET /v1/jobs/{info.id}/wait": answer}


def test_wait_passes_the_first_failure_on(standin: StandIn, carpool: Cli) -> None:
    bad, killed = ended(2, "failed", exit_code=42), ended(3, "failed", exit_code=None, signal=9)
    present(
        standin,
        ended(1),
        bad,
        killed,
        ended(4, "cancelled", exit_code=None, signal=15),
        ended(5, "lost", exit_code=None),
    )
    assert carpool("wait", "1").returncode == 0
    assert carpool("wait", "1", "2", "3").returncode == 42
    assert carpool("wait", "3", "2").returncode == 137
    assert carpool("wait", "5").returncode == 1
    shown = carpool("wait", "1", "3", "4")
    assert shown.stdout.splitlines() == [
        "job 1 succeeded after 5.0s",
        "job 3 failed (SIGKILL) after 5.0s",
        "job 4 cancelled after 5.0s",
    ]


def test_wait_gives_up(standin: StandIn, carpool: Cli) -> None:
    present(standin, job(1))
    assert "job 1 has not ended: it is running" in carpool.fails(6, "wait", "1", "--timeout", "50ms")


def test_of_all_jobs_there_may_be_none(standin: StandIn, carpool: Cli) -> None:
    standin.reactions["GET /v1/jobs"] = as_json({"jobs": []})
    assert carpool.ok("wait", "--all") == "no job has to be waited for\n"
    assert json.loads(carpool.ok("wait", "--all", "--json"))["jobs"] == []
    for mistyped in (["--name", "trian"], ["--all", "--name", "trian"], ["--all", "--state", "paused"], ["trian"]):
        assert carpool("wait", *mistyped).returncode == 4


def test_an_unknown_id_comes_out_before_the_waiting(standin: StandIn, carpool: Cli) -> None:
    present(standin, job(1))
    standin.reactions["GET /v1/jobs/9"] = problem(404, "unknown_job", "there is no job 9")
    assert carpool("wait", "1", "9").returncode == 4
    assert "/v1/jobs/1/wait" not in [request.path for request in standin.requests]


def test_cancel_tries_all(standin: StandIn, carpool: Cli) -> None:
    present(standin, job(1, phase="stopping"), job(3, phase="stopping"))
    standin.reactions |= {f"POST /v1/jobs/{n}/cancel": as_json({}) for n in (1, 3)}
    standin.reactions["POST /v1/jobs/2/cancel"] = problem(404, "unknown_job", "there is no job 2")
    result = carpool("cancel", "1", "2", "3")
    assert result.returncode == 4
    assert result.stdout == "job 1 stopping\njob 3 stopping\n"
    assert result.stderr == "carpool: there is no job 2\n"
    listed = json.loads(carpool("cancel", "--json", "1", "2").stdout)["jobs"]
    assert listed[0] == {"id": 1, "state": "stopping", "error": None}
    assert listed[1]["error"]["code"] == "unknown_job"


def test_logs_whole_and_last_lines(standin: StandIn, carpool: Cli) -> None:
    present(standin, job(1))
    standin.reactions["GET /v1/jobs/1/logs"] = Answer(b"one\ntwo\nthree")
    assert carpool.ok("logs", "1") == "one\ntwo\nthree"
    assert carpool.ok("logs", "1", "-n", "2") == "two\nthree"
    assert json.loads(carpool.ok("logs", "--json", "1")) == {"text": "one\ntwo\nthree"}
    carpool.ok("logs", "1", "-f", "-n", "1")
    assert standin.requests[-1].query == "follow=1&offset=13"


def test_policy_shows_and_changes(standin: StandIn, carpool: Cli) -> None:
    now = {"name": "fair", "available": ["fair", "srtf"], "settings": {"quantum_us": 50000, "max_lanes": None}}
    standin.reactions |= {"GET /v1/policy": as_json(now), "PUT /v1/policy": as_json({**now, "name": "srtf"})}
    assert carpool.ok("policy").splitlines() == ["policy fair (or: srtf)", "placement magm"]
    assert json.loads(carpool.ok("policy", "srtf", "--json"))["name"] == "srtf"
    assert standin.requests[-1].body == {"name": "srtf", "settings": {}, "placement": None}


def test_every_policy_is_for_every_day_or_of_papers() -> None:
    known = {*available_policies(), *available_placements()}
    assert known - OF_PAPERS == {"fair", "srtf", "magm", "exclusive"} and known > OF_PAPERS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(carpool: Cli, shell: str) -> None:
    assert "_CARPOOL_COMPLETE" in carpool.ok("completion", shell)


def test_the_shell_completes_commands_ids_and_policies(standin: StandIn, carpool: Cli) -> None:
    jobs = {"jobs": [msgspec.to_builtins(job(41)), msgspec.to_builtins(job(7))]}
    policies = {"name": "fair", "available": ["fair", "srtf"], "settings": {}}
    standin.reactions |= {"GET /v1/jobs": as_json(jobs), "GET /v1/policy": as_json(policies)}
    for words, expected in (("carpool su", "submit"), ("carpool cancel 4", "41"), ("carpool policy s", "srtf")):
        env = {"_CARPOOL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        assert carpool("", env=env).stdout.split() == [f"plain,{expected}"], words
