"""What a job without a name is called."""

from __future__ import annotations

import pytest

from carpool.protocol.job_names import command_name, program_name

#: Also for the dashboard, which says the same (`tests/dashboard/browser/test_views.py`).
CASES: list[tuple[list[str], str]] = [
    (["/opt/a/venv/bin/python3", "train.py", "--lr", "0.1"], "train.py --lr 0.1"),
    (["python", "train.py"], "train.py"),
    (["/usr/bin/python3.12", "-u", "-O", "/home/ada/models/train.py", "-c", "x y"], "train.py -c x y"),
    (["/usr/bin/env", "python3", "/home/ada/train.py"], "train.py"),
    (["/bin/bash", "-eu", "/home/ada/job.sh", "1"], "job.sh 1"),
    (["python3", "scripts/train.py"], "scripts/train.py"),
    (["./venv/bin/python", "train.py"], "train.py"),
    (["./train.sh", "--fast"], "./train.sh --fast"),
    (["/opt/a/venv/bin/torchrun", "--nproc-per-node", "1", "train.py"], "torchrun --nproc-per-node 1 train.py"),
    (["/opt/a/venv/bin/python", "-m", "vision.train", "--lr", "1"], "python -m vision.train --lr 1"),
    (["/opt/a/venv/bin/python", "-X", "dev", "train.py"], "python -X dev train.py"),
    (["/bin/sh", "-c", "echo 1"], "sh -c echo 1"),
    (["/bin/sh", "-ec", "echo 1"], "sh -ec echo 1"),
    (["/usr/bin/python3"], "python3"),
    (["/usr/bin/env", "A=1", "python3", "t.py"], "env A=1 python3 t.py"),
    (["python3", "-"], "python3 -"),
    (["python3", ""], "python3 "),
    (["sleep", "600"], "sleep 600"),
    (["/"], "/"),
    ([""], ""),
    ([], ""),
]


@pytest.mark.parametrize(("command", "name"), CASES)
def test_the_script_and_its_arguments(command: list[str], name: str) -> None:
    assert command_name(command) == name


def test_the_program_alone() -> None:
    assert program_name(["/opt/a/bin/python3", "-u", "a/train.py", "x"]) == "train.py"
    assert program_name(["/opt/a/bin/torchrun", "train.py"]) == "torchrun"
    assert program_name([""]) == program_name([]) == ""
