"""The shell blocks of the guides and the commands for people who come from other queues, against a real daemon."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.conftest import SOURCE, Cli
from tests.cli.real import SHORT_PAUSE, command_on_path, limited, stopped_afterwards
from tests.pages import DOCS, does_what_it_says
from tests.serve.engines.conftest import FAKE
from tests.tiers import FAMILY

#: Pages whose commands need all of PyTorch.
FAKE_TENSORS = ("estimates.md",)
TIMELINES = pytest.mark.nightly(
    FAMILY, stays="tests/cli/commands/traces/test_timeline.py::test_turns_and_profiles_of_two_jobs_lie_on_one_axis"
)
ESTIMATES = pytest.mark.nightly(
    FAMILY, stays="tests/cli/commands/jobs/test_estimate.py::test_the_script_leaves_nothing_behind_and_reads_nothing"
)


@pytest.mark.parametrize(
    ("page", "least"),
    [
        *[("guide.md", 9), ("simulator.md", 5), ("write-a-policy.md", 6), ("oversubscription.md", 4)],
        ("other-programs.md", 1),
        ("joining.md", 3),
        ("containers.md", 1),
        ("metrics.md", 1),
        ("logs.md", 2),
        ("engines.md", 1),
        pytest.param("timeline.md", 1, marks=TIMELINES),
        ("shared-server.md", 2),
        *[("placement.md", 1), pytest.param("estimates.md", 3, marks=ESTIMATES), ("recovery.md", 1)],
    ],
)
def test_a_guide_does_what_it_says(carpool: Cli, home: Path, page: str, least: int) -> None:
    with tempfile.TemporaryDirectory(prefix="cp-guide-") as directory, stopped_afterwards(carpool, home):
        limited(home, SHORT_PAUSE)
        command_on_path(carpool, Path(directory))
        path = f"{directory}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {name: value for name, value in carpool.env.items() if name != "VIRTUAL_ENV"} | {"PATH": path}
        stand_in_for_transformers(Path(directory))
        env["XDG_CONFIG_HOME"] = f"{directory}/config"
        env["XDG_CACHE_HOME"] = f"{directory}/cache"  # where functions lie that are submitted from Python
        if page in FAKE_TENSORS:
            env["PYTHONPATH"] = str(SOURCE)
        does_what_it_says(page, Path(directory), env, least=least)


def stand_in_for_transformers(directory: Path) -> None:
    """Make a command `transformers serve MODEL --port PORT` that computes nothing: the real one is 300 MB."""
    command = directory / "transformers"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE} "$4" tiny {directory}\n')
    command.chmod(0o755)


PAGE = DOCS / "coming-from.md"
ROWS = [re.split(r" \| ", line.strip("| ")) for line in PAGE.read_text().splitlines() if line.startswith("| ")][2:]


def test_there_are_twenty_actions_and_five_queues() -> None:
    assert len(ROWS) == 20 and {len(row) for row in ROWS} == {6}


def test_carpools_column_works(shared: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#CARPOOL --time 2h\necho x\n")
    assert shared.ok("submit", "--", "true") == "1\n" and shared.ok("wait", "1") is not None
    assert shared.ok("submit", "--begin", "+2h", "--", "true") == "2\n"
    for row in ROWS:
        program, *words = shlex.split(row[1].strip("`"))
        done = shared(*words, cwd=tmp_path)
        assert (program, done.returncode) == ("carpool", 0), (row[0], done.stderr)
