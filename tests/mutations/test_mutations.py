"""Tests of contents notice when a mechanism that they depend on is switched off."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutations.table import IN_C, MOST_TESTS, MUTATIONS, PAGE, ROOT, Mutation, renewed
from tools.emulator.environment import VENV

COPIED = ("src", "tests", "tools", "benchmarks", "pyproject.toml")
LONG = "several minutes, and only for those who change what keeps contents right"
PATIENCE_S = 600
#: What tests of this process need, and those in the copy have of their own: C tests have all emulated GPUs.
FOREIGN = ("PYTEST_", "EMULATOR_", "CUDA_VISIBLE_DEVICES")
STAYS = "test_the_table_is_that_of_the_page"
#: The status of both kinds where tests have run and failed; that of C tests which cannot be compiled is another one.
FAILED = 1


class Tree:
    """A copy of the project in which something has been replaced, with a library and an interpreter of its own.

    Its daemons have a clean environment, so that only the interpreter says where Carpool is.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        unneeded = shutil.ignore_patterns("__pycache__", "results", ".ruff_cache", ".mypy_cache")
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, place / name, **({"ignore": unneeded} if copy is shutil.copytree else {}))
        venv.create(place / "venv", with_pip=False, symlinks=True)
        packages = sysconfig.get_path("purelib", vars={"base": str(place / "venv")})
        Path(packages, "carpool.pth").write_text(f"{place / 'src'}\n{sysconfig.get_path('purelib')}\n")
        self._python = str(place / "venv" / "bin" / "python")

    def mutate(self, mutation: Mutation) -> None:
        file = self._place / mutation.file
        file.write_text(mutation.applied(file.read_text()))
        subprocess.run([sys.executable, str(self._place / "src" / "native" / "build.py")], check=True)

    def test(self, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        environment |= {"EMULATED_GPU_VENV": str(VENV)}
        command = [self._python, *_arguments(tests)]
        return subprocess.run(
            command, cwd=self._place, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )


def _arguments(tests: Sequence[str]) -> list[str]:
    """Of an interpreter that runs them."""
    if all(test.startswith(IN_C) for test in tests):
        return ["src/native/run_tests.py", *(test.removeprefix(IN_C) for test in tests)]
    return ["-m", "pytest", "--tier", "all", "-n0", "-q", "-x", *tests]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_the_table_is_that_of_the_page() -> None:
    assert renewed(PAGE.read_text()) == PAGE.read_text(), "run `python -m tests.mutations.table`"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.mechanism)
def test_each_mutation_still_fits_its_source(mutation: Mutation) -> None:
    assert mutation.applied((ROOT / mutation.file).read_text())
    assert len(mutation.tests) <= MOST_TESTS


@pytest.mark.nightly(LONG, stays=STAYS)
def test_without_a_mutation_they_pass(tree: Tree) -> None:
    """One of each folder: all of them pass in the checkout, from which the copy differs by its place only."""
    tests = {Path(test).parent: test for mutation in MUTATIONS for test in mutation.tests}.values()
    for some in ([test for test in tests if test.startswith(IN_C) is in_c] for in_c in (False, True)):
        done = tree.test(some)
        assert done.returncode == 0, done.stdout


@pytest.mark.nightly(LONG, stays=STAYS)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.mechanism)
def test_a_mechanism_that_is_switched_off_is_noticed(tree: Tree, mutation: Mutation) -> None:
    tree.mutate(mutation)
    done = tree.test(mutation.tests)
    assert done.returncode == FAILED, done.stdout
    assert re.search(r"\b[1-9]\d* failed\b", done.stdout), f"no test has failed:\n{done.stdout}"  # errors are none
