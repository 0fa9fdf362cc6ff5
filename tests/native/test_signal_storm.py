"""The C test of signals at random instants, for longer, and with seeds of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.arbiter import ROOT

sys.path.insert(0, str(ROOT / "src" / "native"))
import run_tests  # found by the line above

SECONDS = 20


@pytest.mark.nightly(
    "a minute of what `make native-test` does for a second",
    stays="tests/e2e/test_signal_handlers.py::test_a_handler_that_touches_a_tensor_at_any_instant",
)
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_storm_of_signals(seed: int, tmp_path: Path) -> None:
    case = run_tests.Case(run_tests.TESTS / "job" / "test_signal_storm.c", run_tests.PLAIN, tmp_path)
    run_tests.compile_test(case)
    storm = subprocess.run([case.program, str(SECONDS), str(seed)], capture_output=True, text=True, timeout=120)
    assert storm.returncode == 0, storm.stdout + storm.stderr
