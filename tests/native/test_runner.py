"""The runner of the C tests: budgets, reports, a long run with seeds; and the driver of the C fuzzers."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.native.arbiter import ROOT

sys.path.insert(0, str(ROOT / "src" / "native"))
import build  # found by the line above
import run_tests


def case(program: str, directory: Path, budget_s: float = 60) -> run_tests.Case:
    """A test that is a shell script."""
    found = run_tests.Case(run_tests.TESTS / "job" / "test_x.c", replace(run_tests.PLAIN, budget_s=budget_s), directory)
    found.program.parent.mkdir()
    found.program.write_text(f"#!/bin/sh\n{program}\n")
    found.program.chmod(0o700)
    return found


def test_a_test_above_its_budget_is_stopped_with_its_children(tmp_path: Path) -> None:
    """Its child has its output, too: to be at the end of that is to know that the child has ended."""
    for number in range(8):  # until the shell has come to its output within the budget
        (place := tmp_path / str(number)).mkdir()
        program = case("sleep 600 & echo begun; wait", place, budget_s=0.25 * 2**number)
        outcome = run_tests.run_program(program, run_tests.Groups())
        assert (outcome.failed, outcome.status) == (True, run_tests.TIMED_OUT)
        if outcome.output.splitlines()[-1] == "begun":
            return
    pytest.fail(outcome.output)


def test_no_test_begins_after_all_were_stopped(tmp_path: Path) -> None:
    groups = run_tests.Groups()
    groups.stop()
    assert run_tests.run_program(case("sleep 600", tmp_path), groups).status == -signal.SIGKILL


@pytest.mark.parametrize(
    ("program", "kind"),
    [("exit 0", None), ("echo 'no \033[1mmemory'; exit 3", "failure"), ("echo 'no GPU'; exit 77", "skipped")],
    ids=["passed", "failed", "skipped"],
)
def test_the_report_has_each_test_with_its_duration(program: str, kind: str | None, tmp_path: Path) -> None:
    outcome = run_tests.run_program(case(program, tmp_path), run_tests.Groups())
    run_tests.write_junit([outcome], tmp_path / "reports" / "native.xml")
    suite = ElementTree.parse(tmp_path / "reports" / "native.xml").getroot()
    test = suite[0]
    assert (test.get("classname"), test.get("name")) == ("native.tests.job", "test_x[plain]")
    assert float(test.attrib["time"]) == pytest.approx(outcome.seconds, abs=0.001)
    assert [element.tag for element in test] == ([kind] if kind else [])
    assert suite.get("failures") == str(int(kind == "failure"))


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("int main(void) { return 0; }", run_tests.PASSED),
        ("int main(void) { return 3; }", run_tests.FAILED),
        ("static int unused; int main(void) { return 0; }", run_tests.NOT_BUILT),  # a warning is an error
    ],
    ids=["passed", "failed", "not built"],
)
def test_what_cannot_be_compiled_has_a_status_of_its_own(
    text: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tests, "TESTS", tmp_path)
    source = tmp_path / "job" / "test_x.c"
    source.parent.mkdir()
    source.write_text(text)
    outcome = run_tests.compile_and_run(run_tests.Case(source, run_tests.PLAIN, tmp_path / "out"), run_tests.Groups())
    assert run_tests.status_of([outcome]) == status, outcome.output
    assert ("NOT BUILT" in str(outcome)) == (status == run_tests.NOT_BUILT)


def test_only_what_has_changed_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tests, "TESTS", tmp_path)
    source = tmp_path / "job" / "test_x.c"
    source.parent.mkdir()
    plain = run_tests.Case(source, run_tests.PLAIN, tmp_path / "out")

    def compiled(case: run_tests.Case, text: str) -> int:
        source.write_text(text)
        run_tests.compile_test(case)
        return case.program.stat().st_ino

    first = compiled(plain, "int main(void) { return 0; }")
    assert compiled(plain, "int main(void) { return 0; }") == first
    second = compiled(plain, "int main(void) { return 3; }")
    assert second != first
    assert compiled(replace(plain, variant=run_tests.LONG), "int main(void) { return 3; }") != second


def test_a_source_of_the_library_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def make() -> None:
        (tmp_path / "x").touch()
        made.append(tmp_path / "x")

    for digest in (b"one", b"one", b"other"):
        monkeypatch.setattr(run_tests, "shared_digest", lambda digest=digest: digest)
        run_tests.once(tmp_path / "x", ["cc"], make)
    assert len(made) == 2


def test_all_but_a_plain_run_repeat_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "--long"])
    (long,) = run_tests.variants_of(run_tests.parsed())
    variants = [long, *run_tests.VARIANTS["sanitized"], *run_tests.VARIANTS["threads"]]
    assert all(run_tests.LONG_ROUNDS in variant.flags for variant in variants)
    assert run_tests.LONG_ROUNDS not in run_tests.PLAIN.flags


def test_a_library_that_has_been_compiled_is_taken(tmp_path: Path) -> None:
    (built := tmp_path / "built").write_text("a library")
    for _ in range(2):
        run_tests.place_library(tmp_path / run_tests.LIBRARY, built)
    assert (tmp_path / run_tests.LIBRARY).read_text() == "a library"


def test_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(run_tests.BuildError, match="cuda/test_gates"):
        run_tests.chosen(tmp_path, [run_tests.PLAIN], ["cuda/test_gates"])


SECONDS = 20


@pytest.mark.nightly(
    "a minute of what `make native-test` does for a second",
    stays="tests/e2e/test_withdrawn.py::test_a_handler_that_touches_a_tensor_at_any_instant",
)
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_storm_of_signals(seed: int, tmp_path: Path) -> None:
    case = run_tests.Case(run_tests.TESTS / "job" / "test_signal_storm.c", run_tests.PLAIN, tmp_path)
    run_tests.compile_test(case)
    storm = subprocess.run([case.program, str(SECONDS), str(seed)], capture_output=True, text=True, timeout=120)
    assert storm.returncode == 0, storm.stdout + storm.stderr


TARGET = """
#include "fuzz/fuzz.h"
#include <stdlib.h>
#include <unistd.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 0 && data[0] == 'c')
    if (size > 1 && data[1] == 'p') ENDS;
  return 0;
}
"""


@pytest.mark.parametrize(("ends", "prefix"), [("abort()", "crash-"), ("for (ualarm(50000, 0);;) {}", "hang-")])
def test_what_breaks_a_target_is_found_and_kept(ends: str, prefix: str, tmp_path: Path) -> None:
    """Two bytes that stand nowhere in the corpus, found one after the other by the code that they reach."""
    program, source, corpus, kept = (tmp_path / name for name in ("program", "target.c", "corpus", "kept"))
    source.write_text(TARGET.replace("ENDS", ends))
    corpus.mkdir()
    kept.mkdir()
    driver = str(ROOT / "src" / "native" / "fuzz" / "driver.c")
    common = [*build.compiler(), "-std=gnu11", "-O1", f"-I{build.NATIVE}"]
    subprocess.run([*common, "-c", driver, "-o", str(tmp_path / "driver.o")], check=True)
    coverage = ["-fsanitize-coverage=trace-pc", str(source), str(tmp_path / "driver.o")]
    subprocess.run([*common, *coverage, "-o", str(program)], check=True)
    session = [str(program), "fuzz", "60", "1", str(corpus), str(kept)]
    assert subprocess.run(session, env={"FUZZ_CRASHES": str(tmp_path)}, check=False).returncode == 1
    (found,) = tmp_path.glob(f"{prefix}*")
    assert found.read_bytes().startswith(b"cp")
    assert {path.read_bytes()[:1] for path in kept.iterdir()} >= {b"c"}
    replay = [str(program), "replay", str(kept)]
    assert subprocess.run(replay, check=False).returncode == 0
    assert subprocess.run([*replay, str(found)], env={"FUZZ_CRASHES": str(kept)}, check=False).returncode == 1
