"""The shell blocks of the guides and the commands for people who come from other queues, against a real daemon.

A block marked ``sh`` is run; a line ``command  # prints: TEXT`` must print TEXT.
A listing under ``<!-- file NAME -->`` lies in the directory from the beginning.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.conftest import SOURCE, Cli
from tests.cli.real import SHORT_PAUSE, command_on_path, limited, stopped_afterwards
from tests.tiers import FAMILY

DOCS = Path(__file__).parents[2] / "docs"
#: Pages whose commands need all of PyTorch.
FAKE_TENSORS = ("estimates.md",)
TIMELINES = pytest.mark.nightly(
    FAMILY, stays="tests/cli/commands/traces/test_timeline.py::test_turns_and_profiles_of_two_jobs_lie_on_one_axis"
)
ESTIMATES = pytest.mark.nightly(
    FAMILY, stays="tests/cli/commands/jobs/test_estimate.py::test_the_script_leaves_nothing_behind_and_reads_nothing"
)
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"<!-- file ([\w.]+).*? -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PRINTS = re.compile(r"# prints: (.+)$", re.MULTILINE)


def blocks(page: str) -> list[str]:
    return _BLOCK.findall((DOCS / page).read_text())


def write_files(page: str, directory: Path) -> None:
    for name, listing in _FILE.findall((DOCS / page).read_text()):
        (directory / name).write_text(listing)
        (directory / name).chmod(0o644)  # whatever the umask: a daemon wants nobody else to write to a policy


def marker(index: int) -> str:
    return f"--- end of block {index} ---"


@pytest.mark.parametrize(
    ("page", "least"),
    [
        *[("guide.md", 9), ("simulator.md", 5), ("write-a-policy.md", 6), ("oversubscription.md", 4)],
        ("other-programs.md", 1),
        ("joining.md", 3),
        ("containers.md", 1),
        ("metrics.md", 1),
        ("logs.md", 2),
        pytest.param("timeline.md", 1, marks=TIMELINES),
        ("shared-server.md", 2),
        *[("placement.md", 1), pytest.param("estimates.md", 3, marks=ESTIMATES), ("recovery.md", 1)],
    ],
)
def test_a_guide_does_what_it_says(carpool: Cli, home: Path, page: str, least: int) -> None:
    found = blocks(page)
    assert len(found) >= least
    # One script, so that variables and directories live on; a mark after each block says where output belongs.
    script = "set -euo pipefail\n" + "".join(f"{block}\necho '{marker(i)}'\n" for i, block in enumerate(found))
    with tempfile.TemporaryDirectory(prefix="cp-guide-") as directory, stopped_afterwards(carpool, home):
        limited(home, SHORT_PAUSE)
        command_on_path(carpool, Path(directory))
        write_files(page, Path(directory))
        path = f"{directory}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {name: value for name, value in carpool.env.items() if name != "VIRTUAL_ENV"} | {"PATH": path}
        env["XDG_CACHE_HOME"] = f"{directory}/cache"  # where functions lie that are submitted from Python
        if page in FAKE_TENSORS:
            env["PYTHONPATH"] = str(SOURCE)
        result = subprocess.run(
            ["bash", "-c", script],
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    assert result.returncode == 0, result.stdout + result.stderr
    rest = result.stdout
    for index, block in enumerate(found):
        output, mark, rest = rest.partition(marker(index))
        assert mark, f"block {index} did not end"
        for text in _PRINTS.findall(block):
            assert text.strip() in output, f"{block}\nprinted\n{output}"


PAGE = Path(__file__).parents[2] / "docs/coming-from.md"
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
