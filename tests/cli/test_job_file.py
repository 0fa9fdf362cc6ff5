"""Job files and grids: what is sent, and how mistakes are told."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from carpool.cli.base.cli_error import Problem
from carpool.cli.request import batch
from carpool.cli.request.job_file import read_job_file
from carpool.cli.request.sweep import combinations, filled
from carpool.cli.request.variables import in_conda, in_venv
from carpool.options.arrays import parameter
from tests.cli.conftest import Cli
from tests.cli.standin import StandIn, as_json, problem

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str, name: str = "jobs.toml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return to_file


def requests_of(path: Path, **options: Any) -> list[dict[str, Any]]:
    made = batch.from_file(read_job_file(path), options.pop("grid", {}), options)
    return [json.loads(_encoded(job)) | {"env": made.env | job.env} for job in made.jobs]


def _encoded(job: object) -> bytes:
    import msgspec

    return msgspec.json.encode(job)


def refused(path: Path) -> str:
    with pytest.raises(Problem) as raised:
        batch.from_file(read_job_file(path), {}, {})
    return raised.value.info.message.replace(f"{path}:", "")


TOO_MUCH = {"retries = " + "9" * 5000: "digits", "command = " + "[" * 5000: "recursion"}


@pytest.mark.parametrize(("text", "said"), TOO_MUCH.items(), ids=TOO_MUCH.values())
def test_what_the_parser_cannot_hold_is_refused(write: Write, text: str, said: str) -> None:
    assert said in refused(write(text))


FULL = """
name = "vae"
command = "sh -c 'echo {lr}' {other}"
memory = "300MiB/1GiB"
expect = "2m"
iterations = 20
weight = 5
after = [3, 1]
device = "host0, host1"
gpus = 2
exclusive = true
retries = 2

[environment]
SEED = 7
RATE = "{lr}"

[param]
lr = [1e-3, "0.1"]
"""


def test_everything_that_a_file_says_is_sent(write: Write, tmp_path: Path) -> None:
    first, second = requests_of(write(FULL))
    env = first.pop("env")
    assert (env["SEED"], env["RATE"]) == ("7", "1e-3")
    assert first.pop("parameters") == {"lr": "1e-3"} and first.pop("own_variables") == ["RATE", "SEED"]
    assert env["PATH"] == os.environ["PATH"]
    assert first == {
        "argv": ["sh", "-c", "echo 1e-3", "{other}"],
        "cwd": str(tmp_path),
        "name": "vae lr=1e-3",
        "iterations": 20,
        "duration_us": 120_000_000,
        "persistent_bytes": 300 << 20,
        "ephemeral_bytes": 1 << 30,
        "weight": 5,
        "after": [1, 3],
        "device": "host0,host1",
        "gpus": 2,
        "exclusive": True,
        "retries": 2,
        "index": 0,
    }
    assert second["argv"][2] == "echo 0.1"


def test_each_job_adds_to_what_holds_for_all(write: Write) -> None:
    path = write(
        """
command = ["true"]
weight = 5
[environment]
A = "1"
[[job]]
name = "prepare"
[[job]]
name = "train"
command = ["sh", "{n}"]
weight = 7
after = ["prepare", 12]
environment = { B = "2" }
[job.param]
n = [1, 2]
[[job]]
after = "train"
"""
    )
    made = batch.from_file(read_job_file(path), {}, {})
    assert [job.name for job in made.jobs] == ["prepare", "train n=1", "train n=2", ""]
    assert [job.weight for job in made.jobs] == [5, 7, 7, 5]
    assert [job.after for job in made.jobs] == [[], [12], [12], []]
    assert made.follows == [[], [0], [0], [1, 2]]
    assert made.env["A"] == "1" and made.jobs[1].env == {"B": "2"}
    assert made.jobs[1].parameters == {"n": "1"} and made.jobs[0].own_variables == ["A"]
    assert made.jobs[0].env == {}, "what all have in common is sent once"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('command = ["true"]\nzzz = 1\n', "2: unknown key 'zzz'; allowed are name, command"),
        ('command = ["true"]\n\nretries = true\n', "3: retries: it must be a whole number, 0 or more"),
        ('command = "sh \'x"\n', "1: command: no closing quotation; allowed is a list of words"),
        ("command = [1]\n", "1: command: it must be text"),
        ('name = "x"\n', "1: the job has no command"),
        ('command = ["true"\nname = 1\n', "2:"),
        ('[[job]]\ncommand = "true"\n[[job]]\nname = "b"\n', "3: the job has no command"),
        ('command = "true"\nmemory = "5 apples"\n', "2: memory: "),
        ('[[job]]\nname = "a"\ncommand = "true"\nafter = "b"\n', "4: after: no job above this one is called 'b'"),
        ('command = "true"\n[param]\nlr = []\n', "2: param: the parameter lr has an empty value"),
        ('command = "true"\nvenv = "no"\n', "2: venv: "),
        ('venv = "no"\n[[job]]\ncommand = "true"\n', "1: venv: "),
        ("job = 1\n", "1: write each job as a [[job]] table"),
    ],
)
def test_mistakes_are_told_with_their_line(write: Write, text: str, message: str) -> None:
    assert refused(write(text)).startswith(message)


def test_a_grid_has_a_limit(write: Write) -> None:
    numbers = ", ".join(map(str, range(40)))
    path = write(f'command = "true"\n[param]\na = [{numbers}]\nb = [{numbers}]\n')
    assert refused(path) == "that makes 1600 jobs; one submission has at most 1000"


def test_paths_with_anything_in_them(write: Write, tmp_path: Path) -> None:
    odd = tmp_path / "a+b c'\"ü"
    odd.mkdir()
    script = odd / 'träin "1".sh'
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    path = odd / "job ü+.toml"
    path.write_text("command = ['./träin \"1\".sh', 'x y']\n")
    (request,) = requests_of(path)
    assert request["argv"] == ['./träin "1".sh', "x y"] and request["cwd"] == str(odd)


def test_parameters() -> None:
    assert parameter("a=1,2") == ("a", ("1", "2"))
    for wrong in ("a", "=1", "a=", "a=1,,2", "1a=2", "a=1,1"):
        with pytest.raises(ValueError, match=r"parameter|NAME="):
            parameter(wrong)
    assert list(combinations({"a": ("1", "2"), "b": ("x",)})) == [{"a": "1", "b": "x"}, {"a": "2", "b": "x"}]
    assert filled('{a}{b} {{a}} {"a": 1}', {"a": "{b}", "b": "x"}) == '{b}x {{b}} {"a": 1}'


def test_virtual_and_conda_environments(tmp_path: Path) -> None:
    for place in ("venv", "conda/envs/torch", "conda"):
        (tmp_path / place / "bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    env = {"PATH": "/bin", "VIRTUAL_ENV": "/old", "CONDA_ROOT": str(tmp_path / "conda"), "X": "1"}
    venv = in_venv(env, tmp_path / "venv")
    assert (venv["PATH"], venv["VIRTUAL_ENV"], venv["X"]) == (f"{tmp_path}/venv/bin:/bin", f"{tmp_path}/venv", "1")
    for name, prefix in (("torch", "conda/envs/torch"), ("base", "conda"), ("./venv", "venv")):
        made = in_conda(env, name, tmp_path)
        assert (made["PATH"], made["CONDA_PREFIX"]) == (f"{tmp_path / prefix}/bin:/bin", str(tmp_path / prefix))
        assert "VIRTUAL_ENV" not in made
    with pytest.raises(ValueError, match="no conda environment 'other'"):
        in_conda(env, "other", tmp_path)
    with pytest.raises(ValueError, match="not a virtual environment"):
        in_venv(env, tmp_path / "conda")


def test_submitting_a_file(standin: StandIn, carpool: Cli, write: Write, tmp_path: Path) -> None:
    standin.reactions["POST /v1/submissions"] = as_json({"ids": [4, 5]}, 201)
    write('command = "true {a}"\n')
    assert carpool.ok("submit", "--param", "a=1,2", "--name", "n", "jobs.toml", cwd=tmp_path) == "4\n"
    assert standin.requests[0].body["arrays"] == [[0, 1]]
    assert json.loads(carpool.ok("submit", "--json", "--param", "a=1,2", "jobs.toml", cwd=tmp_path)) == {"ids": [4, 5]}
    assert [job["argv"] for job in standin.requests[0].body["jobs"]] == [["true", "1"], ["true", "2"]]
    assert [job["name"] for job in standin.requests[0].body["jobs"]] == ["n a=1", "n a=2"]
    carpool.ok("submit", "--param", "a=1,2", "--retries", "3", "sh", "{a}", cwd=tmp_path)
    assert [(job["argv"], job["retries"]) for job in standin.requests[2].body["jobs"]] == [
        (["sh", "1"], 3),
        (["sh", "2"], 3),
    ]


def test_a_program_that_is_called_like_a_job_file(standin: StandIn, carpool: Cli, tmp_path: Path) -> None:
    standin.reactions["POST /v1/jobs"] = as_json({"id": 4}, 201)
    program = tmp_path / "job.toml"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert carpool.ok("submit", "--", "./job.toml", cwd=tmp_path) == "4\n"
    assert standin.requests[0].body["argv"] == ["./job.toml"]


def test_a_file_that_is_not_there_and_options_behind_it(standin: StandIn, carpool: Cli, tmp_path: Path) -> None:
    assert "there is no file none.toml" in carpool("submit", "none.toml", cwd=tmp_path).stderr
    assert "words after the job file" in carpool("submit", "none.toml", "--name", "x", cwd=tmp_path).stderr
    assert not standin.requests


def test_what_the_daemon_refuses(standin: StandIn, carpool: Cli, write: Write, tmp_path: Path) -> None:
    standin.reactions["POST /v1/submissions"] = problem(400, "unknown_device", "job 2 of 2: there is no device 'x'")
    write('command = "true"\n')
    assert "job 2 of 2: there is no device 'x'" in carpool("submit", "jobs.toml", cwd=tmp_path).stderr
