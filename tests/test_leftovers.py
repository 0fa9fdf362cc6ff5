"""A module that leaves a process behind fails; what a fixture of the whole run started stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITE = """
import subprocess, pytest
pytest_plugins = ["tests.leftovers"]

def pytest_configure(config):
    config.pluginmanager.get_plugin("tests.leftovers").PATIENCE_S = 0.2  # what is left does not end by itself

@pytest.fixture(scope="session")
def server():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()
"""
FIRST = """
import subprocess
def test_alone(): pass
def test_server(server): assert server.poll() is None
"""
SECOND = "def test_server(server): assert server.poll() is None"
LEAVES = "import subprocess\ndef test(): assert subprocess.Popen(['sleep', '500'], start_new_session=True)"


def run(directory: Path, **files: str) -> str:
    (directory / "conftest.py").write_text(SUITE)
    for name, text in files.items():
        (directory / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60).stdout


def test_a_fixture_of_the_whole_run_may_begin_in_the_middle_of_a_module(tmp_path: Path) -> None:
    said = run(tmp_path, first=FIRST, second=SECOND)
    assert "3 passed" in said and "error" not in said, said


def test_what_a_module_leaves_behind_is_named_and_killed(tmp_path: Path) -> None:
    said = run(tmp_path, leaves=LEAVES, next=SECOND)
    assert "left processes behind" in said and "sleep 500" in said, said
    assert "2 passed, 1 error" in said, said
