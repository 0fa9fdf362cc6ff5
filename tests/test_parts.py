"""Parts of `make test-all`: what has passed on a commit is kept, and only that is not run again."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests import parts
from tests.parts import PYTHON_PARTS, TIERS, Part
from tests.tiers import FOLDERS

ROOT = Path(__file__).resolve().parent.parent
MAKEFILE = """
good:
\t@echo fine
bad:
\t@echo wrong; exit 1
"""
GOOD, BAD = Part("first", "good"), Part("second", "bad", beside=True)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a Makefile, and nothing that has passed there."""
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setattr(parts, "RECORDS", tmp_path / "build" / "parts")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / ".gitignore").write_text("build/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    return commit(tmp_path)


def git(place: Path, *arguments: str) -> None:
    own = ["-c", "user.name=Tests", "-c", "user.email=tests@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *own, *arguments], cwd=place, check=True)


def commit(place: Path) -> Path:
    git(place, "commit", "-q", "--allow-empty", "-m", "a state")
    return place


def test_what_has_passed_is_not_run_again_on_its_commit(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert [record.passed for record in parts.run_all([GOOD, BAD])] in ([True, False], [False, True])
    assert parts.still_to_run([GOOD, BAD]) == [BAD]
    assert "first                   passed" in capfd.readouterr().out
    commit(checkout)
    assert parts.still_to_run([GOOD, BAD]) == [GOOD, BAD]


def test_what_passed_with_changed_files_has_passed_on_no_commit(checkout: Path) -> None:
    (checkout / "file").touch()
    (record,) = parts.run_all([GOOD])
    assert record.passed and "with changed files" in str(record)
    assert parts.still_to_run([GOOD]) == [GOOD]
    (checkout / "file").unlink()
    assert parts.still_to_run([GOOD]) == [GOOD]


def test_what_fails_has_not_passed_any_more(checkout: Path) -> None:
    parts.run_all([GOOD])
    parts.run_all([Part(GOOD.name, "bad")])
    assert parts.kept(GOOD) is None


def test_what_is_beside_prints_all_of_it_with_its_end(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    parts.run(BAD)
    printed = capfd.readouterr().out
    assert printed.index("wrong\n") < printed.index("Error 1") < printed.index("second                  FAILED")


def test_a_part_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(SystemExit, match="`all` has no part deamon; it has core, daemon, cli"):
        parts.chosen("all", ["deamon"])


def test_what_runs_by_hand_leaves_a_dated_page(checkout: Path, tmp_path: Path) -> None:
    page = parts.write_result("versions", [parts.run(GOOD)], tmp_path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-.+-versions\.md", page.name)
    assert "- first                   passed on" in page.read_text() and "- cores: " in page.read_text()


REPORT = """<testsuites><testsuite>
<testcase name="test[one]"><properties><property name="texts different" value="0 of 4"/></properties></testcase>
<testcase name="test[other]"><skipped message="needs `make it`"/></testcase>
<testcase name="test[third]"><failure message="no"/></testcase>
</testsuite></testsuites>"""


def test_the_page_has_what_tests_have_recorded(checkout: Path, tmp_path: Path) -> None:
    report = checkout / "build" / "reports" / "engines.xml"
    report.parent.mkdir(parents=True)
    report.write_text(REPORT)
    lines = parts.write_result("engines", [], tmp_path).read_text().splitlines()
    assert lines[0] == "# Servers of language models beside training"
    assert lines[2:5] == [
        "- test[one]: texts different 0 of 4",
        "- test[other]: skipped, needs `make it`",
        "- test[third]: FAILED",
    ]


def test_each_folder_is_in_a_part_and_each_part_has_folders() -> None:
    assert {folder.part for folder in FOLDERS.values()} == set(PYTHON_PARTS)


def test_each_part_is_a_target_of_make() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {part.target.split()[0] for tier in TIERS.values() for part in tier} <= targets
