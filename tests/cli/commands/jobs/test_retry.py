"""`carpool retry`: ended jobs run once more, in the places that they had in their arrays; against a real daemon."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from carpool.protocol.client import PAGE
from tests.cli.conftest import Cli
from tests.cli.real import DEVICE, daemon_pid, kill_and_wait
from tests.cli.standin import Answer, Request, StandIn, as_json, problem

#: Says who it is, and fails until there is a file with its index in its directory.
TRIES = 'echo "$CARPOOL_ARRAY_JOB $CARPOOL_ARRAY_INDEX $CARPOOL_PARAM_X $OWN"; [ -e "may-$CARPOOL_ARRAY_INDEX" ]'


def row(cli: Cli, name: str) -> str:
    (line,) = (line for line in cli.ok("ls", "--all").splitlines() if f" {name} " in line)
    return line


def test_the_failed_elements_take_their_places_again(shared: Cli, tmp_path: Path) -> None:
    (tmp_path / "may-1").touch()
    options = ["--name", "again", "--param", "x=a,b,c"]
    array = shared.submit(*options, "--", "sh", "-c", TRIES, cwd=tmp_path)
    assert shared("wait", array).returncode == 1 and "3 of 3 done, 2 failed" in row(shared, "again")
    (tmp_path / "may-0").touch()
    assert len(shared.ok("retry", f"{array}[0-1]").split()) == 1
    assert shared("wait", f"{array}[0-1]").returncode == 0
    assert f"{array}[0-2]" in row(shared, "again") and "3 of 3 done, 1 failed" in row(shared, "again")
    assert shared.ok("logs", f"{array}_0") == f"{array} 0 a \n"
    (tmp_path / "may-2").touch()
    (last,) = shared.ok("retry", array).split()
    assert shared("wait", array).returncode == 0 and "3 of 3 done" in row(shared, "again")
    assert shared.show(last)["cwd"] == str(tmp_path) and shared.show(last)["name"] == "again x=c"
    assert re.search(rf"retry of +job {shared.show(last)['retry_of']}\b", shared.ok("show", last))
    assert f"no job of yours is selected by '{array}'" in shared.fails(4, "retry", array)


def test_a_single_job_and_what_cannot_be_tried_again(shared: Cli) -> None:
    job = shared.submit("--", "true")
    shared.ok("wait", job)
    (again,) = shared.ok("retry", job).split()  # named by its id: it may have succeeded
    shared.ok("wait", again)
    assert f"job {job} has been tried again already, as job {again}" in shared.fails(5, "retry", job)
    running = shared.submit("--", "sleep", "600")
    assert f"carpool requeue {running}" in shared.fails(5, "retry", running)
    both = shared("retry", job, running)
    assert both.returncode == 5 and not both.stdout
    assert f"as job {again}" in both.stderr and f"carpool requeue {running}" in both.stderr
    shared.ok("cancel", running)
    shared("wait", running)
    assert "there is no job 999999" in shared.fails(4, "retry", "999999")


def test_variables_that_were_given_have_to_be_given_again(shared: Cli, tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("TOKEN=1\n")
    options = ["--env", "OWN=first", "--env-file", "secrets", "--array", "0-1"]
    array = shared.submit(*options, "--", "sh", "-c", TRIES, cwd=tmp_path)
    shared("wait", array)
    before = shared.ok("ls", "--all", "--json")
    assert f"job {array}_0 was given the variables OWN, TOKEN" in shared.fails(5, "retry", array)
    had = shared("retry", array, env={"OWN": "the shell's", "TOKEN": "another"})
    assert had.returncode == 5 and "the variables OWN, TOKEN" in had.stderr, "what the shell has is not what was given"
    assert json.loads(shared.ok("ls", "--all", "--json"))["jobs"] == json.loads(before)["jobs"]
    (tmp_path / "may-0").touch()
    shared.ok("retry", array, "--env", "OWN=second", "--env-file", "secrets", cwd=tmp_path)
    assert shared("wait", array).returncode == 1
    assert shared.ok("logs", f"{array}_0") == f"{array} 0  second\n"


def test_jobs_that_waited_for_a_failed_one_follow_its_retry(shared: Cli, tmp_path: Path) -> None:
    first = shared.submit("--hold", "--shell", "[ -e may ]", cwd=tmp_path)
    second = shared.submit("--after", first, "--", "true")
    third = shared.submit("--after", second, "--", "true")
    shared.ok("release", first)
    shared("wait", third)
    assert shared.show(second)["outcome"] == "refused"
    assert f"job {first} has ended: failed" in shared.fails(5, "retry", second)
    (tmp_path / "may").touch()
    one, two = shared.ok("retry", first, second).split()
    assert shared.show(two)["after"] == [int(one)]
    assert shared("wait", two).returncode == 0
    (three,) = shared.ok("retry", third).split()
    assert shared.show(three)["after"] == [int(two)]
    assert shared("wait", one, two, three).returncode == 0


def test_the_environment_that_a_job_file_activates_stays(shared: Cli, tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "f.toml").write_text('command = ["sh", "-c", "echo $VIRTUAL_ENV; exit 1"]\nvenv = "venv"\n')
    job = shared.submit("f.toml", cwd=tmp_path)
    shared("wait", job)
    (again,) = shared.ok("retry", job, env={"VIRTUAL_ENV": "/another"}).split()
    shared("wait", again)
    assert shared.ok("logs", again) == shared.ok("logs", job) == f"{tmp_path / 'venv'}\n"


def test_a_python_function_is_not_tried_again(shared: Cli) -> None:
    script = "import carpool, operator; print(carpool.submit(operator.truediv, 1, 0).id)"
    called = subprocess.run([sys.executable, "-c", script], env=shared.env, check=True, capture_output=True, text=True)
    job = called.stdout.strip()
    shared("wait", job)
    assert "ran a Python function" in shared.fails(5, "retry", job)


def test_a_daemon_that_was_killed_knows_what_stands_for_what(own_daemon: Cli, home: Path, tmp_path: Path) -> None:
    array = own_daemon.submit("--name", "kept", "--param", "x=a,b", "--", "sh", "-c", TRIES, cwd=tmp_path)
    own_daemon("wait", array)
    (tmp_path / "may-0").touch()
    kill_and_wait(daemon_pid(home))
    own_daemon.ok("up", "--device", DEVICE)
    assert len(own_daemon.ok("retry", array).split()) == 2
    own_daemon("wait", array)
    kill_and_wait(daemon_pid(home))
    assert "2 of 2 done, 1 failed" in own_daemon("ls", "--all").stdout  # from the journal
    own_daemon.ok("up", "--device", DEVICE)
    assert "2 of 2 done, 1 failed" in row(own_daemon, "kept")
    assert own_daemon.ok("logs", f"{array}_0") == f"{array} 0 a \n"
    assert len(own_daemon.ok("retry", array).split()) == 1
    own_daemon("wait", array)


def test_an_error_of_all_jobs_is_said_once_and_counts_for_each(standin: StandIn, carpool: Cli) -> None:
    standin.reactions["POST /v1/retries"] = problem(507, "disk_full", "the disk is full", "make room")
    standin.reactions["GET /v1/jobs"] = as_json({"jobs": []})
    assert carpool.fails(5, "retry", "7", "9").count("the disk is full") == 1
    left = json.loads(carpool("retry", "7", "9", "--json").stdout)["left"]
    assert [each["job"] for each in left] == [7, 9]


def test_a_job_that_is_alone_on_the_last_page_is_left_out_beside_the_others(standin: StandIn, carpool: Cli) -> None:
    def retried(request: Request) -> Answer:
        jobs = request.body["jobs"]
        if jobs == [PAGE + 1]:
            return problem(409, "not_ended", "it has not ended")
        return as_json({"ids": [job + 2000 for job in jobs], "retried": jobs, "left": []})

    standin.reactions["POST /v1/retries"] = retried
    standin.reactions["GET /v1/jobs"] = as_json({"jobs": []})
    result = carpool("retry", "--json", *map(str, range(1, PAGE + 2)))
    said = json.loads(result.stdout)
    assert result.returncode == 5 and len(said["ids"]) == PAGE
    assert [each["job"] for each in said["left"]] == [PAGE + 1]
