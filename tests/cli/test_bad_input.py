"""Bad input and bad circumstances: one clear message that says what to do, and a stable exit code."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import Cli
from tests.cli.standin import Answer, StandIn, as_json, job, problem

COMMANDS_THAT_NEED_A_DAEMON = [
    ["ls"],
    ["show", "1"],
    ["logs", "1"],
    ["wait", "1"],
    ["cancel", "1"],
    ["policy"],
    ["set"],
    ["model", "ls"],
    ["model", "show", "resnet"],
    ["model", "rm", "resnet"],
]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit"], "there is no command to run"),
        (["submit", "--mem", "12parsecs", "--", "true"], "'12parsecs' is not a size: write for example 300MiB"),
        (["submit", "--mem", "1GiB/", "--", "true"], "'' is not a size"),
        (["submit", "--weight", "-3", "--", "true"], "-3 is too small: it must be 1 or more"),
        (["submit", "--iterations", "many", "--", "true"], "'many' is not a whole number"),
        (["submit", "--expect", "soon", "--", "true"], "'soon' is not a time: write for example 30s"),
        (["submit", "--after", "0", "--", "true"], "'0' is not a job id"),
        (["show", "@x"], "'@x' is not a job: @ is the job that you submitted last"),
        (["cancel", "--state", "asleep"], "there is no state 'asleep'; the states: queued, "),
        (["cancel", "--user", "no such user"], "this machine has no user 'no such user'"),
        (["cancel", "--all", "1"], "leave out the other words"),
        (["up", "--store", "lots"], "'lots' is not a size"),
        (["wait"], "which jobs?"),
        (["up", "--set", "quantum_us"], "'quantum_us' is not NAME=VALUE"),
        (["set", "risk_active_ppm=0.8"], "it must be a percentage, as in 5%, or a whole number of millionths"),
        (["set", "risk_active_ppm=180%"], "'180%' is not between 0 and 1"),
        (["set", "placement=lug"], "not a setting with a number; use: carpool policy --placement lug"),
        (["set", "quantum_us=soon"], "'soon' is not a time: write for example 30s"),
        (["set", "quantum_us=50000"], "a number without a unit is seconds: did you mean 50ms?  For seconds: 50000s"),
        (["set", "quantum_us=-5s"], "quantum_us is -5s: it must be 0 or more"),
        (["set", "max_jobs=5s"], "max_jobs is '5s'; it must be a whole number"),
        (["set", "quantum_us=1s", "quantum_us=2s"], "a setting is given twice"),
        (["set", "oversubscribe=maybe"], "oversubscribe is 'maybe'; it must be one of off, auto, on"),
        (["set", "host_store=16"], "did you mean 16GiB?"),
        (["set", "host_store=some"], "'some' is not a size"),
        (["up", "--store", "16"], "did you mean 16GiB?"),
        (["submit", "--mem", "300MiB/500000", "--", "true"], "did you mean 500000MiB?"),
        (["simulate", "--store", "1048576"], "did you mean 1048576B?"),
    ],
)
def test_a_wrong_command_line(carpool: Cli, arguments: list[str], said: str) -> None:
    result = carpool(*arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_no_command_at_all_is_a_question(carpool: Cli) -> None:
    result = carpool()
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: carpool ")


@pytest.mark.parametrize("arguments", COMMANDS_THAT_NEED_A_DAEMON)
def test_no_daemon(carpool: Cli, arguments: list[str]) -> None:
    result = carpool.fails(3, *arguments)
    assert "no daemon is running" in result
    assert "carpool up" in result


def test_down_without_a_daemon_is_done_already(carpool: Cli) -> None:
    assert "no daemon is running" in carpool.ok("down")


def test_problems_as_json(carpool: Cli) -> None:
    error = json.loads(carpool("ls", "--json").stderr)["error"]
    assert error["code"] == "not_running"
    assert error["hint"]


def test_commands_are_checked_when_they_are_submitted(carpool: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a program\n")
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    for words, code, said in (
        (["no-such-program"], 4, "there is no command 'no-such-program' in PATH"),
        (["tool"], 4, "to run the file in this directory: ./tool"),
        (["./no-such-file"], 4, "there is no file ./no-such-file"),
        (["./notes.txt"], 5, "chmod +x ./notes.txt, or name its interpreter"),
        (["/tmp"], 2, "/tmp is a directory"),
        (["missing.py"], 4, f"no command 'missing.py' in PATH\n  nor is there a script {tmp_path / 'missing.py'}"),
    ):
        result = carpool("submit", "--", *words, cwd=tmp_path)
        assert (result.returncode, said in result.stderr) == (code, True), (words, result)


def test_missing_directories(carpool: Cli, tmp_path: Path) -> None:
    assert "there is no directory" in carpool.fails(4, "submit", "-D", str(tmp_path / "gone"), "--", "true")
    gone = tmp_path / "here"
    gone.mkdir()
    shell = f"cd {gone} && rmdir {gone} && exec " + " ".join(carpool.command("submit", "--", "true"))
    result = _shell(carpool, shell)
    assert result.returncode == 4
    assert "the current directory no longer exists" in result.stderr


def test_home_directories_that_nobody_knows(carpool: Cli) -> None:
    for arguments in (["ls", "--home", "~no-such-user/x"], ["submit", "-D", "~no-such-user", "--", "true"]):
        result = carpool(*arguments)
        assert (result.returncode, result.stdout) == (1, "")
        assert "carpool: ~no-such-user" in result.stderr
        assert "no such home directory is known; write the whole path" in result.stderr
        assert "Traceback" not in result.stderr


def _shell(carpool: Cli, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/sh", "-c", text], env=carpool.env, capture_output=True, text=True, timeout=60)


def test_nothing_is_started_for_a_command_that_cannot_run(carpool: Cli, home: Path) -> None:
    carpool("submit", "--", "no-such-program")
    assert not home.exists()


def test_what_the_daemon_refuses_is_passed_on(standin: StandIn, carpool: Cli) -> None:
    standin.reactions |= {
        "POST /v1/jobs": problem(422, "too_large", "the job asks for 9 GiB", "ask for less"),
        "PUT /v1/policy": problem(400, "bad_policy", "unknown policy 'x'; known policies: fifo, pack, srtf, fair"),
        "POST /v1/jobs/1/cancel": problem(403, "not_owner", "job 1 belongs to uid 7"),
        "GET /v1/jobs/1": problem(404, "unknown_job", "there is no job 1"),
    }
    for arguments, code, said in (
        (["submit", "--", "true"], 5, "the job asks for 9 GiB\n  ask for less"),
        (["policy", "x"], 2, "known policies: fifo, pack, srtf, fair"),
        (["cancel", "1"], 5, "job 1 belongs to uid 7"),
        (["show", "1"], 4, "there is no job 1"),
        (["wait", "1"], 4, "there is no job 1"),
    ):
        result = carpool(*arguments)
        assert (result.returncode, said in result.stderr) == (code, True), (arguments, result)


def test_a_daemon_of_another_version(home: Path, carpool: Cli) -> None:
    with StandIn(home, protocol="99", reactions={"GET /v1/jobs": as_json({"jobs": []})}):
        result = carpool("ls")
    assert result.returncode == 7
    assert "speaks protocol version 99" in result.stderr
    assert "carpool down" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_socket_of_another_user(standin: StandIn, carpool: Cli) -> None:
    os.chown(standin.home, 12345, 12345)
    standin.home.chmod(0o700)
    standin.home.parent.chmod(0o755)
    result = _as_user(54321, carpool)
    assert result.returncode == 5
    assert "belongs to user 12345" in result.stderr
    assert "CARPOOL_HOME" in result.stderr


def _as_user(uid: int, carpool: Cli) -> subprocess.CompletedProcess[str]:
    """`carpool ls` by somebody who could perhaps not even read this Python: everything is loaded before."""
    program = (
        "import os, pwd, sys; import carpool.cli.commands.jobs.ls, carpool.cli.render.output;"
        "from carpool.cli.main import main;"
        f"os.setgroups([]); os.setgid({uid}); os.setuid({uid}); sys.exit(main(['ls']))"
    )
    return subprocess.run(
        [carpool.command()[0], "-c", program], env=carpool.env, capture_output=True, text=True, timeout=60
    )


def test_a_home_that_cannot_be_used(carpool: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot use" in carpool.fails(3, "up", "--home", str(tmp_path / "file" / "below"))


def test_a_reader_that_has_seen_enough(standin: StandIn, carpool: Cli) -> None:
    standin.reactions["GET /v1/jobs/1"] = Answer(msgspec.json.encode(job(1)))
    standin.reactions["GET /v1/jobs/1/logs"] = Answer(b"x" * 10_000_000)
    result = _shell(carpool, " ".join(carpool.command("logs", "1")) + " | head -c 10")
    assert result.stderr == ""
    assert result.stdout == "x" * 10
