"""Scripts with #CARPOOL and #SBATCH lines, and --shell; against a real daemon."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from carpool.options.sbatch import _HINTS, translated
from carpool.options.slurm import NotTheSame
from carpool.options.table import SBATCH
from tests.cli.conftest import Cli


def script(directory: Path, *lines: str, name: str = "job.sh") -> Path:
    (directory / name).write_text("\n".join(["#!/bin/bash", *lines]) + "\n")
    return directory / name


def test_lines_of_a_script_are_options_and_the_command_line_prevails(shared: Cli, tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "#CARPOOL --name x --output 'a file' # why",
        "#SBATCH --mem=4G",
        "",
        "#CARPOOL --env A=1",
        "echo $A $1",
    )
    job = shared.submit("--iterations", "5", "job.sh", "word", cwd=tmp_path)
    assert shared("wait", job).returncode == 0
    info = shared.show(job)
    assert (info["name"], info["iterations_total"], info["output"]) == ("x", 5, f"{tmp_path}/a file")
    assert info["command"] == ["/bin/bash", str(path), "word"]
    assert (tmp_path / "a file").read_text() == "1 word\n"
    assert shared.show(shared.submit("--name", "y", "job.sh", cwd=tmp_path))["name"] == "y"


def test_a_script_without_lines_and_a_program_in_python(shared: Cli, tmp_path: Path) -> None:
    script(tmp_path, "echo hello")
    plain = shared.submit("job.sh", cwd=tmp_path)
    (tmp_path / "train.py").write_text("#CARPOOL --name trains\nprint('trained')\n")
    python = shared.submit("train.py", cwd=tmp_path)
    assert shared("wait", plain, python).returncode == 0
    assert (shared.show(plain)["name"], shared.ok("logs", plain)) == ("job.sh", "hello\n")
    assert (shared.show(python)["name"], shared.ok("logs", python)) == ("trains", "trained\n")


def test_slurms_lines(shared: Cli, tmp_path: Path) -> None:
    lines = [
        "#SBATCH -J theirs -o out-%j --nodes=1",
        "#SBATCH --gres=gpu:1 --export=ALL,A=2",
        "echo $A",
        "#SBATCH --mem=4G",
    ]
    script(tmp_path, *lines)
    job = shared.submit("job.sh", cwd=tmp_path)
    assert shared("wait", job).returncode == 0
    assert shared.show(job)["name"] == "theirs"
    assert (tmp_path / f"out-{job}").read_text() == "2\n"


def test_what_means_something_else_is_refused_all_at_once(shared: Cli, tmp_path: Path) -> None:
    script(tmp_path, "#SBATCH --mem=4G", "#SBATCH --exclusive", "#SBATCH -p gpu --mail-type=ALL", "true")
    result = shared.fails(2, "submit", "job.sh", cwd=tmp_path)
    said = [line for line in result.splitlines() if "job.sh:" in line]
    assert "job.sh:2: --mem: in Slurm this is memory of the host" in said[0]
    assert "job.sh:3: --exclusive: in Slurm this is a whole node" in said[1]
    assert "job.sh:4: " in said[2]
    assert "--partition: there are no partitions" in said[2] and "; --mail-type: Carpool sends no mail" in said[2]
    assert "remove these lines, or write #CARPOOL lines" in result


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["#CARPOOL --gpus many"], "job.sh:2: Invalid value for '--gpus': 'many' is not a whole number"),
        (["true", "#CARPOOL --gpus 1"], "job.sh:3: #CARPOOL has to stand before the first command"),
        (["#CARPOOL --gpus 1 train.py"], "job.sh:2: 'train.py' is not an option"),
        (["#CARPOOL --speed 9"], "job.sh:2: No such option '--speed'"),
        (["#CARPOOL --name 'x"], "job.sh:2: no closing quotation"),
        (["#SBATCH --gpus=a100:2"], "kinds of GPUs are chosen by --device"),
    ],
)
def test_lines_that_cannot_be_understood(carpool: Cli, tmp_path: Path, lines: list[str], said: str) -> None:
    script(tmp_path, *lines)
    assert said in carpool.fails(2, "submit", "job.sh", cwd=tmp_path)


def test_a_script_needs_an_interpreter(carpool: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("echo hello\n")
    assert "begin the file with #!/bin/bash" in carpool.fails(2, "submit", "job.sh", cwd=tmp_path)


def test_a_line_for_the_shell(shared: Cli, tmp_path: Path) -> None:
    job = shared.submit("--shell", "echo a b | wc -w && echo $0", cwd=tmp_path)
    grid = shared.submit("--shell", "echo {x} | rev", "--param", "x=abc", cwd=tmp_path)
    assert shared("wait", job, grid).returncode == 0
    assert (shared.ok("logs", job), shared.ok("logs", grid)) == ("2\nbash\n", "cba\n")
    assert shared.ok("run", "--shell", "echo c | cat") == "c\n"
    assert "--shell takes the whole command" in shared.fails(2, "submit", "--shell", "true", "--", "true")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--time=90"], ["--time", "5400s"]),
        (["-t", "1-12:30"], ["--time", "131400s"]),
        (["-t", "0:30"], ["--time", "30s"]),
        (["-t1:00:01"], ["--time", "3601s"]),
        (["-d", "afterok:3:4,afterany:5"], ["--after", "3,4", "--after", "any:5"]),
        (["--dep=afterok:3"], ["--after", "3"]),
        (["-N1", "-n", "1", "--no-requeue", "--open-mode=truncate"], []),
        (["--hold"], ["--hold"]),
        (["--requeue", "--gpus-per-node=gpu:2"], ["--requeue", "--gpus", "2"]),
        (["--begin=now+2hours"], ["--begin", "+7200s"]),
        (["-b", "now+30minutes"], ["--begin", "+1800s"]),
        (
            ["--begin=now+1day", "--begin=now+90", "--begin=now+1week"],
            ["--begin", "+86400s", "--begin", "+90s", "--begin", "+604800s"],
        ),
        (["--begin=now"], []),
        (["--begin=2026-12-01T10:00"], ["--begin", "2026-12-01T10:00"]),
        (["--begin=22:00", "-b07:30:15"], ["--begin", "22:00", "--begin", "07:30:15"]),
        (["--signal=USR1@120"], ["--signal", "USR1@120"]),
        (["-a", "0-9%3"], ["--array", "0-9%3"]),
    ],
)
def test_the_same_in_other_words(words: list[str], options: list[str]) -> None:
    assert translated(words) == options


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-N", "2"], "one server"),
        (["-n4"], "torchrun"),
        (["--exclusive=user"], "whole node"),
        (["--mem-per-gpu=1G"], "memory of the host"),
        (["--licenses=x"], "Carpool has no such option"),
        (["-d", "singleton"], "singleton"),
        (["--export=NONE"], "whole environment"),
        (["--open-mode=append"], "--open-mode"),
        (["--begin=tomorrow"], "--begin tomorrow: now[+]2hours, 22:00 and 2026-12-01T10:00 are understood"),
        (["--begin=22"], "--begin 22: "),
        (["--begin=now+2fortnights"], "are understood"),
        (["--signal=B:USR1@120"], "--signal B:USR1@120: B: in Slurm this is for the batch shell alone"),
        (["--signal=USR9"], "'USR9' is not a signal"),
        (["--time=0"], "no limit"),
        (["--nice"], "--weight"),
        (["--nice=100"], "--weight"),
        (["--mail-type=ALL"], "--notify"),
        (["--mail-user=me"], "--notify"),
        (["--array=x"], "'x' is not a list of indices"),
        (["--mem=1G", "--nice"], "--mem: .*; --nice: "),
    ],
)
def test_what_is_not_the_same(words: list[str], said: str) -> None:
    with pytest.raises(NotTheSame, match=said):
        translated(words)


def test_the_guide_names_every_line_of_slurms() -> None:
    guide = (Path(__file__).parents[2] / "docs/guide.md").read_text()
    table = guide.partition("| lines of Slurm | here |\n")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]
    named = {answer: set(re.findall(r"`--([a-z-]+)", options)) for options, answer in rows}
    understood = {name for answer, names in named.items() if not answer.startswith("refused") for name in names}
    assert understood == set(SBATCH)
    refused = {name for answer, names in named.items() if answer.startswith("refused") for name in names}
    assert refused == set(_HINTS) - set(SBATCH)


def test_a_begin_of_slurms_reaches_the_daemon(shared: Cli, tmp_path: Path) -> None:
    script(tmp_path, "#SBATCH --begin=now+2hours --time=10 --signal=USR1@120", "true")
    job = shared.submit("job.sh", cwd=tmp_path)
    info = shared.show(job)
    assert abs(int(str(info["begin_us"])) - int(str(info["submitted_us"])) - 7_200_000_000) < 60_000_000
    assert (info["time_us"], info["limit_signal"], info["limit_signal_us"]) == (600_000_000, 10, 120_000_000)
    shared.ok("cancel", job)
    script(tmp_path, "#SBATCH --begin=noonish", "#SBATCH --nice", "true")
    said = shared("submit", "job.sh", cwd=tmp_path).stderr
    assert "job.sh:2: --begin noonish" in said and "job.sh:3: --nice" in said
