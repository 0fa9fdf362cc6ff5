"""Files of the user's own for a job's output, its variables and its directory; against a real daemon."""

from __future__ import annotations

import getpass
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Forks
from tests.cli.real import DEVICE, SHORT_PAUSE, shared_daemon

TALKS = "echo out $1; echo error $1 >&2"
FAILS_ONCE = 'echo start; [ -e "$1" ] || { touch "$1"; exit 1; }'
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.fixture(scope="module")
def shared(forks: Forks) -> Iterator[Cli]:
    with shared_daemon(forks, "--device", DEVICE, limits=SHORT_PAUSE) as cli:
        yield cli


def submit(cli: Cli, directory: Path, *words: str) -> str:
    return cli.ok("submit", *words, cwd=directory).split()[-1]


def test_output_goes_to_the_users_file_and_logs_finds_it(shared: Cli, tmp_path: Path) -> None:
    job = submit(shared, tmp_path, "--name", "n", "-o", "%x-%u-%j-100%%.out", "--", "sh", "-c", TALKS, "sh", "1")
    assert shared("wait", job).returncode == 0
    path = tmp_path / f"n-{getpass.getuser()}-{job}-100%.out"
    assert path.read_text() == "out 1\nerror 1\n"
    assert shared.ok("logs", job) == "out 1\nerror 1\n"
    assert shared.ok("logs", job, "-n", "1") == "error 1\n"
    assert f"output           {path}" in shared.ok("show", job)
    assert shared.show(job)["output"] == str(path)
    assert "where its output goes" in shared("logs", "--error", job).stderr
    assert "all attempts" in shared("logs", "--attempt", "1", job).stderr


def test_the_two_streams_may_go_to_two_files(shared: Cli, tmp_path: Path) -> None:
    both = submit(shared, tmp_path, "-o", "o", "-e", "e", "--", "sh", "-c", TALKS, "sh", "2")
    only = submit(shared, tmp_path, "--error", "%j.e", "--", "sh", "-c", TALKS, "sh", "3")
    assert shared("wait", both, only).returncode == 0
    assert ((tmp_path / "o").read_text(), (tmp_path / "e").read_text()) == ("out 2\n", "error 2\n")
    assert shared.ok("logs", "-e", both) == "error 2\n"
    assert (tmp_path / f"{only}.e").read_text() == "error 3\n"
    assert shared.ok("logs", only).startswith("out 3\n[carpool: the end of ")  # which the daemon keeps


@pytest.mark.parametrize("options", [[], ["-o", "o"]], ids=["of the daemon", "of the user"])
def test_logs_follows_a_file_that_grows_until_the_end(shared: Cli, tmp_path: Path, options: list[str]) -> None:
    os.mkfifo(gate := tmp_path / "gate")
    job = submit(shared, tmp_path, *options, "--", "sh", "-c", "echo first; cat gate; echo last")
    follower = shared.start(["logs", "-f", job], stdout=subprocess.PIPE)
    assert follower.stdout is not None
    assert follower.stdout.readline() == "first\n"
    gate.write_text("")
    assert follower.communicate(timeout=60)[0] == "last\n"
    assert follower.returncode == 0


def test_the_first_attempt_begins_the_file_and_the_next_add_to_it(shared: Cli, tmp_path: Path) -> None:
    (tmp_path / "o").write_text("of before\n")
    job = submit(shared, tmp_path, "--retries", "1", "-o", "o", "--", "sh", "-c", FAILS_ONCE, "sh", "been")
    assert shared("wait", job).returncode == 0
    assert (tmp_path / "o").read_text() == "start\nstart\n"


def test_a_message_about_memory_is_found_in_a_users_file(shared: Cli, tmp_path: Path) -> None:
    script = f'[ -e been ] || {{ touch been; echo "{OUT_OF_MEMORY}" >&2; exit 1; }}'
    job = submit(shared, tmp_path, "-o", "o", "-e", "e", "--", "sh", "-c", script)
    assert shared("wait", job).returncode == 0
    info = shared.show(job)
    assert "tried to allocate 2.00 GiB" in info["attempts"][0]["text"]


def test_a_file_that_cannot_be_opened_ends_the_job_with_a_reason(shared: Cli, tmp_path: Path) -> None:
    """A pipe without a reader must not hold up the shim, which nobody could then end."""
    os.mkfifo(tmp_path / "pipe")
    job = submit(shared, tmp_path, "-o", "pipe", "--", "true")
    assert shared("wait", job).returncode != 0
    assert f"{tmp_path}/pipe: No such device or address" in shared.ok("show", job)


def test_names_of_jobs_in_a_grid(shared: Cli, tmp_path: Path) -> None:
    grid = ["--param", "lr=a/b,0.1"]
    assert f"several jobs would write to {tmp_path}/x" in shared.fails(
        2, "submit", *grid, "-o", "x", "--", "echo", "{lr}", cwd=tmp_path
    )
    jobs = shared.ok("submit", *grid, "-o", "%a-{lr}", "--", "echo", "{lr}", cwd=tmp_path).split()
    assert shared("wait", *jobs).returncode == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"0-a_b": "a/b\n", "1-0.1": "0.1\n"}


def test_a_job_file_names_files(shared: Cli, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text('output = "%x.%j"\n[[job]]\nname = "a"\ncommand = "echo 1"\n')
    job = submit(shared, tmp_path, "jobs.toml")
    assert shared("wait", job).returncode == 0
    assert (tmp_path / f"a.{job}").read_text() == "1\n"
    (tmp_path / "jobs.toml").write_text('[[job]]\ncommand = "echo 1"\noutput = "no/%j"\n')
    assert (
        f"jobs.toml:3: --output: there is no directory {tmp_path}/no"
        in shared("submit", "jobs.toml", cwd=tmp_path).stderr
    )


def test_variables_and_the_directory(shared: Cli, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "variables").write_text("# a comment\n\nexport A=\"of a file\"\nB='=x'\nC=of a file\n")
    options = ["-D", "sub", "--env-file", "variables", "--env", "C=of the line", "--env", "D="]
    job = submit(shared, tmp_path, *options, "--", "sh", "-c", 'echo "$PWD|$A|$B|$C|${D-none}"')
    assert shared("wait", job).returncode == 0
    assert shared.ok("logs", job) == f"{tmp_path}/sub|of a file|=x|of the line|\n"
    shown = shared.ok("run", "--env", "A=1", "--", "sh", "-c", "echo $A", cwd=tmp_path)
    assert shown == "1\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "%q"], "there is no code %q: there are %j (the job's id)"),
        (["-o", "%"], "there is no code %:"),
        (["-o", "%a"], "%a is the index of a job in an array or a grid, and this job is in none"),
        (["-o", "."], "is a directory"),
        (["-e", "gone/x"], "--error: there is no directory"),
        (["--env", "x"], "'x' is not NAME=VALUE"),
        (["--env-file", "gone"], "--env-file gone: No such file"),
        (["--env-file", "wrong"], "wrong:2: 'what' is not NAME=VALUE"),
    ],
)
def test_what_cannot_be_meant(carpool: Cli, tmp_path: Path, options: list[str], said: str) -> None:
    (tmp_path / "wrong").write_text("A=1\nwhat\n")
    result = carpool("submit", *options, "--", "true", cwd=tmp_path)
    assert result.returncode in (2, 4)
    assert said in result.stderr
