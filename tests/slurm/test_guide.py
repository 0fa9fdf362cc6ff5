"""The commands of docs/slurm.md, in a real cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.live import PATIENCE_S
from tests.tiers import RARER_WAY

if TYPE_CHECKING:
    from tests.slurm.conftest import Sites

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"<!-- file ([\w.]+) -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PRINTS = re.compile(r"# prints: (.+)$", re.MULTILINE)


@pytest.mark.nightly(RARER_WAY, stays="tests/slurm/test_jobs.py::test_batch_scripts_and_steps_share_a_device")
def test_the_guide_does_what_it_says(sites: Sites, tmp_path: Path) -> None:
    site, text = sites(), PAGE.read_text()
    for name, listing in _FILE.findall(text):
        (tmp_path / name).write_text(listing)
    (block,) = _BLOCK.findall(text)
    done = subprocess.run(
        ["bash", "-euc", block],
        cwd=tmp_path,
        env=site.cluster.environment | {"PATH": f"{_commands(tmp_path, site.daemons['n1'].home)}:{site.cluster.path}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}{site.story()}"
    for printed in _PRINTS.findall(block):
        assert printed in done.stdout, f"{done.stdout}{site.story()}"


def _commands(directory: Path, home: Path) -> Path:
    """Where the commands ``python`` and ``carpool`` are."""
    place = directory / "bin"
    place.mkdir()
    for name, words in (("python", ""), ("carpool", " -m carpool.cli")):
        (place / name).write_text(f'#!/bin/sh\nCARPOOL_HOME={home} exec {sys.executable}{words} "$@"\n')
        (place / name).chmod(0o755)
    return place
