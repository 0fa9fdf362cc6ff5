"""Which tests are those of a module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.of_module import SOURCE, TESTS, files_of, main


def test_a_module_has_the_file_of_its_name_and_what_imports_it() -> None:
    found = files_of(SOURCE / "daemon" / "jobs" / "constraints.py")
    assert TESTS / "daemon" / "jobs" / "test_constraints.py" in found
    assert all("constraints" in file.read_text() for file in found)


def test_what_is_reached_through_others_only_has_its_folder() -> None:
    assert files_of(SOURCE / "daemon" / "jobs" / "killing.py") == [TESTS / "daemon" / "jobs"]


def test_tests_of_several_folders_run_together() -> None:
    """By its bare name a conftest would be that of whichever folder came last."""
    wrong = [
        file for file in TESTS.rglob("*.py") if re.search(r"^\s*from conftest import", file.read_text(), re.MULTILINE)
    ]
    assert not wrong, f"write `from tests.FOLDER.conftest import` in {wrong}"


def test_what_is_no_module_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["of_module"])
    assert main() == 1
    assert "name a module" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["of_module", str(Path(__file__))])
    assert main() == 1
    assert "is no module in src/carpool" in capsys.readouterr().err
