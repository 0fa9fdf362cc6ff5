"""What people type who know other tools, or mistype: each message names what would work."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from carpool.cli.base.foreign_commands import _COMMANDS, command_hint
from carpool.cli.main import COMMANDS
from carpool.core import spelling
from tests.cli.conftest import Cli
from tests.cli.standin import StandIn, device, device_list


def hint(carpool: Cli, *arguments: str, code: int = 2, cwd: Path | None = None) -> str:
    result = carpool(*arguments, cwd=cwd)
    assert (result.returncode, result.stdout) == (code, ""), result
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("word", "command"),
    [
        *[(word, "ls") for word in ("status", "queue", "squeue", "jobs", "ps")],
        *[(word, "cancel ID") for word in ("kill", "scancel", "rm")],
        ("stop", "cancel ID, or for the daemon: carpool down"),
        ("info", "show ID"),
        ("sbatch", "submit -- COMMAND"),
        ("srun", "run -- COMMAND"),
        ("nvidia-smi", "devices"),
        ("ctl", "set"),
        ("tail", "logs ID"),
        ("suspend", "pause ID"),
        ("stash", "hold ID"),
        *[(word, "release ID") for word in ("unstash", "enqueue")],
    ],
)
def test_a_command_of_another_tool_names_the_one_here(carpool: Cli, word: str, command: str) -> None:
    said = hint(carpool, word, "7")
    assert f"there is no command {word!r}\n  in Carpool: carpool {command}\n" in said


def test_every_command_that_is_named_exists() -> None:
    named = {command.split(" ")[0].rstrip(",") for command in _COMMANDS.values()}
    assert {name for name in named if not name.startswith("--")} <= set(COMMANDS)
    assert command_hint("lottery") == ""


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("lst",), "did you mean 'ls'?"),
        (("submit", "--nmae", "x", "--", "true"), "'--name'"),
        (("submit", "--job-name", "x", "--", "true"), "in Carpool: --name; "),
        (("submit", "--gres", "gpu:1", "--", "true"), "in Carpool: --gpus; "),
        (("ls", "--state", "runing"), "did you mean 'running'? "),
        (("cancel", "--state", "failed,pausd"), "did you mean 'paused'? "),
        (("submit", "--duration", "1h", "--", "true"), "in Carpool: --expect; "),
        (
            ("up", "--preset", "saluss"),
            "unknown preset 'saluss': did you mean 'salus'? known are carma, nvshare, salus",
        ),
        (("set", "quantm=5ms"), "did you mean 'quantum_us'? "),
        (("simulate", "--generate", "poison"), "did you mean 'poisson'? "),
        (("simulate", "--generate", "poisson:job=3"), "did you mean 'jobs'? "),
        (("simulate", "--generate", "poisson", "--policy", "fiar"), "did you mean 'fair'? "),
        (("simulate", "--generate", "poisson", "--placement", "mgam"), "did you mean 'magm'? "),
        (("simulate", "--generate", "poisson", "--slowdown", "timeslices"), "did you mean 'timeslice'? "),
        (("simulate", "--generate", "poisson", "--estimator", "oracel"), "did you mean 'oracle'? "),
    ],
)
def test_what_was_mistyped_is_named(carpool: Cli, arguments: tuple[str, ...], meant: str) -> None:
    assert meant in hint(carpool, *arguments)


def test_a_device_that_was_mistyped_is_named(standin: StandIn, carpool: Cli) -> None:
    standin.reactions["GET /v1/devices"] = device_list(device([]))
    assert "did you mean 'host0'? known devices: host0" in hint(carpool, "devices", "hots0", code=4)


def test_a_job_of_a_file_that_was_mistyped_is_named(carpool: Cli, tmp_path: Path) -> None:
    text = '[[job]]\nname = "prepare"\ncommand = "true"\n[[job]]\nafter = "prepaer"\ncommand = "true"\n'
    (tmp_path / "jobs.toml").write_text(text)
    assert "did you mean 'prepare'?" in hint(carpool, "submit", "jobs.toml", cwd=tmp_path)


@pytest.mark.parametrize("line", ["seq 3 | wc -l", "cd /tmp && ./train.sh", "echo $HOME"])
def test_a_command_line_for_a_shell_names_one(carpool: Cli, line: str) -> None:
    assert f"carpool submit -- bash -c '{line}'" in hint(carpool, "submit", line, code=4)


def test_a_quoted_command_is_to_be_given_as_words(carpool: Cli) -> None:
    assert "carpool submit -- python train.py" in hint(carpool, "submit", "python train.py", code=4)


def test_a_program_with_an_odd_name_is_run(carpool: Cli, tmp_path: Path) -> None:
    """What exists is never taken for a command line."""
    (tmp_path / "a | b").write_text("#!/bin/sh\n")
    assert "chmod +x" in hint(carpool, "submit", "./a | b", code=5, cwd=tmp_path)


def test_what_the_docstring_shows() -> None:
    found = doctest.testmod(spelling)
    assert (found.attempted > 0, found.failed) == (True, 0)
    assert spelling.did_you_mean("x" * 1_000_000, ["x" * 999_999]) == "", "no name is so long"
