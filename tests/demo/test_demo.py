"""The demo: what it prints of a scene, and one of its scenes against a real daemon."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.demo.__main__ import SCENES, show
from tools.demo.picture import Band
from tools.demo.scene import Scene
from tools.demo.timeline import Timeline

ENGINES = "tests/cuda/pytorch/test_training.py::test_contents_of_memory_that_moves"


def test_a_scene_says_its_figure_and_why_and_draws_both_runs(tmp_path: Path) -> None:
    bands = [Band("fifo", Timeline(), {}), Band("srtf", Timeline(), {})]
    scene = Scene("short", "A short job", "it has ended after", "9.0 s", "3.0 s", "because", bands, 1 << 20)
    text = show(scene, tmp_path / "out")
    assert text.splitlines()[:3] == ["A short job", "  it has ended after: 9.0 s -> 3.0 s", "  because"]
    titles = [node.text for node in ElementTree.parse(tmp_path / "out" / "short.svg").iter() if node.text]
    assert {"fifo", "srtf", "device 1 MiB"} <= set(titles)


def test_jobs_that_a_driver_would_refuse_succeed(root: Path, python: str, tmp_path: Path) -> None:
    command = [python, "-m", "tools.demo", "memory", "--out", str(tmp_path)]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=80, check=False)
    assert result.returncode == 0, result.stderr[-3000:] + result.stdout[-3000:]
    assert result.stdout.split("moved: ")[1].split("\n")[0].endswith(" of 2 -> 2 of 2")
    assert "memory" in SCENES and (tmp_path / "report.txt").read_text() in result.stdout


@pytest.mark.nightly("half a minute of PyTorch", stays=ENGINES)
def test_engines_that_a_driver_would_refuse_work(root: Path, python: str, tmp_path: Path) -> None:
    command = [python, "-m", "tools.demo", "engines", "--out", str(tmp_path)]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=180, check=False)
    assert result.returncode == 0, result.stderr[-3000:] + result.stdout[-3000:]
    assert result.stdout.split("with Carpool: ")[1].split("\n")[0] == "1 of 2 -> 2 of 2"


def test_a_scene_says_what_it_lacks(root: Path, python: str, tmp_path: Path) -> None:
    environment = os.environ | {"EMULATED_GPU_VENV": str(tmp_path)}
    command = [python, "-m", "tools.demo", "engines"]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 2 and "engines: it needs the emulated GPU: run `make emulated-gpu`" in result.stderr


def test_an_unknown_scene_names_those_there_are(root: Path, python: str) -> None:
    command = [python, "-m", "tools.demo", "movie"]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and "there is no scene 'movie'; choose from short-job, notebook" in result.stderr
