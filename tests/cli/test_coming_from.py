"""The table for people who come from other queues: twenty rows, and Carpool's commands work as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.cli.conftest import Cli

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
