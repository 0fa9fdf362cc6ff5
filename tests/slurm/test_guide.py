"""The commands of docs/slurm.md, in a real cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages import does_what_it_says
from tests.tiers import RARER_WAY

if TYPE_CHECKING:
    from tests.slurm.conftest import Sites


@pytest.mark.nightly(RARER_WAY, stays="tests/slurm/test_jobs.py::test_batch_scripts_and_steps_share_a_device")
def test_the_guide_does_what_it_says(sites: Sites, tmp_path: Path) -> None:
    site = sites()
    path = f"{_commands(tmp_path, site.daemons['n1'].home)}:{site.cluster.path}"
    does_what_it_says("slurm.md", tmp_path, site.cluster.environment | {"PATH": path}, site.story)


def _commands(directory: Path, home: Path) -> Path:
    """Where the commands ``python`` and ``carpool`` are."""
    place = directory / "bin"
    place.mkdir()
    for name, words in (("python", ""), ("carpool", " -m carpool.cli")):
        (place / name).write_text(f'#!/bin/sh\nCARPOOL_HOME={home} exec {sys.executable}{words} "$@"\n')
        (place / name).chmod(0o755)
    return place
