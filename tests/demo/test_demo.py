"""The demo: what it prints of a scene, and one of its scenes against a real daemon."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.demo.__main__ import show
from tools.demo.picture import Band
from tools.demo.scene import Scene
from tools.demo.timeline import Timeline

ANSWERS = "tests/e2e/test_engines.py::test_an_engine_beside_training"
ENGINES = "tests/cuda/pytorch/test_training.py::test_contents_of_memory_that_moves"


def test_a_scene_says_its_figure_and_why_and_draws_both_runs(tmp_path: Path) -> None:
    bands = [Band("fifo", Timeline(), {}), Band("srtf", Timeline(), {})]
    scene = Scene("short", "A short job", "it has ended after", "9.0 s", "3.0 s", "because", bands, 1 << 20)
    text = show(scene, tmp_path / "out")
    assert text.splitlines()[:3] == ["A short job", "  it has ended after: 9.0 s -> 3.0 s", "  because"]
    titles = [node.text for node in ElementTree.parse(tmp_path / "out" / "short.svg").iter() if node.text]
    assert {"fifo", "srtf", "device 1 MiB"} <= set(titles)


@pytest.fixture
def run_scene(root: Path, python: str, tmp_path: Path) -> Callable[[str, int], str]:
    """Run a scene within so many seconds, and return what it prints; the picture and the report are in `tmp_path`."""

    def run(name: str, limit_s: int) -> str:
        command = [python, "-m", "tools.demo", name, "--out", str(tmp_path)]
        result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=limit_s, check=False)
        assert result.returncode == 0, result.stderr[-3000:] + result.stdout[-3000:]
        assert (tmp_path / "report.txt").read_text() in result.stdout
        return result.stdout

    return run


def test_jobs_that_a_driver_would_refuse_succeed(run_scene: Callable[[str, int], str]) -> None:
    said = run_scene("memory", 80)
    assert said.split("moved: ")[1].split("\n")[0].endswith(" of 2 -> 2 of 2")


@pytest.mark.nightly("half a minute of PyTorch", stays=ENGINES)
def test_engines_that_a_driver_would_refuse_work(run_scene: Callable[[str, int], str]) -> None:
    said = run_scene("engines", 180)
    assert said.split("with Carpool: ")[1].split("\n")[0] == "1 of 2 -> 2 of 2"


@pytest.mark.nightly("half a minute of PyTorch", stays=ANSWERS)
def test_a_language_model_answers_and_nothing_is_changed(run_scene: Callable[[str, int], str], tmp_path: Path) -> None:
    said = run_scene("answers", 180)
    assert re.search(r"by turns -> by carpool serve: \d+ ms -> \d+ ms\n", said)
    assert "26 of 26 texts, 2 of 2 trained models" in said
    titles = {node.text for node in ElementTree.parse(tmp_path / "answers.svg").iter() if node.text}
    assert {"by turns", "by carpool serve"} <= titles


def test_a_scene_says_what_it_lacks(root: Path, python: str, tmp_path: Path) -> None:
    environment = os.environ | {"EMULATED_GPU_VENV": str(tmp_path)}
    command = [python, "-m", "tools.demo", "engines"]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 2 and "engines: it needs the emulated GPU: run `make emulated-gpu`" in result.stderr


def test_an_unknown_scene_names_those_there_are(root: Path, python: str) -> None:
    command = [python, "-m", "tools.demo", "movie"]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and "there is no scene 'movie'; choose from short-job, notebook" in result.stderr
