"""Tiers of tests: the list of what `make test` leaves out is true, and a test that takes too much fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tier_tables import PAGE, renewed
from tests.tiers import ALL_TESTS, FOLDERS, LIST, TIERS, Collected, all_but_first, budget_s, cpu_budget_s, listing

#: Beside C tests, lint and types that is ten to twelve minutes on two quiet cores.
WORKER_SECONDS, CPU_SECONDS = 1600, 780
ROOT = Path(__file__).resolve().parent.parent
#: The tests that have failed once and are not mended yet.
FLAKY = ROOT / "tests" / "flaky.md"
PLUGIN = """
pytest_plugins = ["tests.tiers"]
import tests.tiers
tests.tiers.TESTS = tests.tiers.Path(__file__).parent
Folder = tests.tiers.Folder
tests.tiers.FOLDERS = {"pure": Folder("check", "core", 1, 1), "real": Folder("test", "daemon", 1, 1)}
tests.tiers.TIERS |= {"check": tests.tiers.Tier(0.3, 60.0), "test": tests.tiers.Tier(30.0, 4.0)}
"""
TESTS = """
import subprocess, sys, threading, time, pytest
{body}
"""


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> list[Collected]:
    """Every test there is."""
    config = request.config
    if config.option.tier == "check" or config.args != config.getini("testpaths"):
        pytest.skip("only a run of `make test` or `make test-all` knows all tests")
    return config.stash[ALL_TESTS]


def test_the_list_of_nightly_tests_is_current(collected: list[Collected]) -> None:
    """Also: every test on the list is collected."""
    assert LIST.read_text() == "".join(listing(collected)), "run: make nightly-list"


def test_what_a_nightly_test_promises_is_kept_by_another(collected: list[Collected]) -> None:
    kept = {test.function for test in collected if test.nightly is None}
    promised = {test.id: test.nightly.stays for test in collected if test.nightly is not None}
    assert {name: stays for name, stays in promised.items() if stays not in kept} == {}


def test_every_folder_has_tests(collected: list[Collected]) -> None:
    with_tests = {test.id.removeprefix("tests/").partition("::")[0] for test in collected}
    assert [name for name in FOLDERS if not any(path.startswith(name) for path in with_tests)] == []


def test_the_tables_are_current() -> None:
    assert renewed(PAGE.read_text()) == PAGE.read_text(), "run: make nightly-list"


def test_the_budgets_fit_into_the_time_of_make_test() -> None:
    assert budget_s() <= WORKER_SECONDS and cpu_budget_s() <= CPU_SECONDS


def test_what_has_failed_once_exists_and_its_cause_is_known() -> None:
    text = FLAKY.read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| `"]
    assert [row for row in rows if len(row) != 4 or not all(row)] == [], "test, when, cause, state"
    assert [row[0] for row in rows if not is_test(*row[0].strip("`").split("::"))] == []
    assert ("No test is listed." in text) == (not rows)


def is_test(path: str, function: str) -> bool:
    """The one of these parameters, or all of them."""
    file = ROOT / path
    return file.is_file() and f"def {function.partition('[')[0]}(" in file.read_text()


def test_a_later_tier_allows_more() -> None:
    check, test, everything = TIERS.values()
    assert check.cpu_s < test.cpu_s < everything.cpu_s and check.wall_s < test.wall_s < everything.wall_s


def test_parameters_of_a_family() -> None:
    first, second, third = all_but_first([1, (2,), pytest.param(3, id="three")], "long")
    assert first == 1
    assert (second.values, [mark.args for mark in second.marks]) == ((2,), [("long",)])
    assert (third.values, third.id, [mark.args for mark in third.marks]) == ((3,), "three", [("long",)])


def outcome(directory: Path, tier: str, *options: str, **files: str) -> str:
    """What pytest says of a small suite of two folders."""
    (directory / "conftest.py").write_text(PLUGIN)
    for name in ("pure", "real"):
        (directory / name).mkdir()
        (directory / name / f"test_{name}.py").write_text(TESTS.format(body=files.get(name, "def test(): pass")))
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "pytest_timeout", f"--tier={tier}", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, str(directory)], cwd=directory, env=environment, capture_output=True, text=True, timeout=60
    ).stdout


NIGHTLY = """
def test_short(): pass
@pytest.mark.nightly("long", stays="test_short")
def test_long(): pass
"""


@pytest.mark.parametrize(("tier", "count"), [("check", 1), ("test", 2), ("all", 3)])
def test_each_tier_has_its_tests(tmp_path: Path, tier: str, count: int) -> None:
    said = outcome(tmp_path, tier, real=NIGHTLY)
    assert f"{count} passed" in said, said


#: For 0.3 s of processor time, on a fast machine too.
SPINS = "import time\nwhile time.process_time() < 0.3: pass"
BUSY = f"def test():\n    subprocess.run([sys.executable, '-c', {SPINS!r}], check=True)"


def test_what_uses_too_much_processor_time_fails(tmp_path: Path) -> None:
    said = outcome(tmp_path, "check", "--slack=0.3", pure=BUSY)
    assert "of processor time; a test of `check` may use 0.09 s" in said, said
    assert "1 error" in said, said


def test_slack_is_for_machines_that_need_more(tmp_path: Path) -> None:
    said = outcome(tmp_path, "check", "--slack=1000", pure=BUSY)
    assert "1 passed" in said and "error" not in said, said


def test_what_hangs_is_ended(tmp_path: Path) -> None:
    said = outcome(
        tmp_path, "test", "--slack=0.2", pure="@pytest.mark.timeout(600)\ndef test():\n    threading.Event().wait()"
    )
    assert "ended: a test of `test` may take 0.8 s" in said and "1 failed" in said, said


def test_a_folder_that_is_in_no_tier_is_refused(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "test_new.py").write_text("def test(): pass")
    assert "tests/new/test_new.py is in no folder of tests/tiers.py" in outcome(tmp_path, "all")
