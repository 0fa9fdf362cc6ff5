"""Compile and run the C tests, several at a time: plainly, or under the address and undefined-behaviour sanitizers.

Every ``native/tests/FOLDER/test_*.c`` is a program of its own.  It includes the library sources that it tests, so it
needs no other object file.  Exit status 0 is success, 77 is a skip whose reason the test has printed.
The run's own is 0, 1 where a test failed, 2 where something could not be compiled.

Those of ``cuda/`` test the gate: they are linked with the library's objects and run on the stub driver
(``emulator/``).  ``cuda/test_routes`` has the built library preloaded instead, as jobs have.

A test that takes longer than its budget (``--budget``, or its variant's) is stopped and has failed.

Standard library only: ``python3 native/run_tests.py [--variants plain|sanitized|threads] [--junit FILE] [NAME...]``.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import build
from build import LIBRARIES, NATIVE, BuildError, compiler

WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Werror"]


@dataclass(frozen=True)
class Variant:
    """One way to compile and run every test."""

    name: str
    flags: tuple[str, ...]
    sanitizer: str | None  # the value of ``-fsanitize``
    budget_s: float  # of one test, on a machine that does other things too


PLAIN = Variant("plain", ("-O2", "-g"), None, 120)
ADDRESS = Variant("asan", ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address"), "address", 180)
UNDEFINED = Variant("ubsan", ("-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=all"), "undefined", 180)
THREAD = Variant("tsan", ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=thread"), "thread", 180)
#: Tests of threads that the thread sanitizer can follow: it defers signals, which traps need, and takes what a test
#: reads without a lock, because nobody writes there any more, for a race.
THREADED = {"turn/test_channel_ended", "weights/test_groups"}
VARIANTS = {"plain": (PLAIN,), "sanitized": (ADDRESS, UNDEFINED), "threads": (THREAD,)}
ENVIRONMENT = {
    # The library handles SIGSEGV itself and interposes malloc's relatives: ASan must leave both alone.
    "ASAN_OPTIONS": "handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1:detect_leaks=0:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:handle_segv=0:handle_sigbus=0",
    "TSAN_OPTIONS": f"report_thread_leaks=0:suppressions={NATIVE / 'tests' / 'tsan.suppressions'}",
}
PASSED, SKIPPED, TIMED_OUT = 0, 77, 124
#: Of a test, and of all of them: it failed; there is no such test, or what it consists of cannot be compiled.
FAILED, NOT_BUILT = 1, 2

TESTS = NATIVE / "tests"
GATE = "cuda/"
PRELOADED = "cuda/test_routes"
#: Includes the one source that it tests, and needs no driver.
STANDALONE = "cuda/test_visible_devices"
EMULATOR = NATIVE.parent / "emulator" / "build.py"
#: These stand before libc's functions, which belong to the sanitizers in a test.
INTERPOSERS = {"dlsym.c", "io_bounce.c", "malloc_hooks.c", "signals.c"}
FAKES = TESTS / "cuda" / "fake_caller.c"
FAKE_LIBRARIES = ("libcudart.so.12", "libc10_cuda.so", "libnccl.so.2")


@dataclass(frozen=True)
class Case:
    source: Path
    variant: Variant
    place: Path  # where the variant's programs and libraries lie

    @property
    def name(self) -> str:
        """``FOLDER/test_NAME``."""
        return str(self.source.relative_to(TESTS).with_suffix(""))

    @property
    def needs_driver(self) -> bool:
        return self.name.startswith(GATE) and self.name != STANDALONE

    @property
    def program(self) -> Path:
        return self.place / self.name


@dataclass(frozen=True)
class Outcome:
    case: Case
    status: int
    output: str
    seconds: float  # of the run; compiling is not part of it
    built: bool = True

    @property
    def failed(self) -> bool:
        return self.status not in (PASSED, SKIPPED)

    def __str__(self) -> str:
        failed = f"FAILED (status {self.status})" if self.built else "NOT BUILT"
        word = {PASSED: "ok", SKIPPED: "skipped"}.get(self.status, failed)
        return f"{self.case.name} [{self.case.variant.name}]: {word}, {self.seconds:.1f} s"


# ---- compiling -----------------------------------------------------------------------------------------------------


def flags(variant: Variant) -> list[str]:
    return ["-std=gnu11", *WARNINGS, *variant.flags, f"-I{NATIVE}"]


def execute(command: Sequence[str]) -> None:
    """Raises BuildError."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"{' '.join(command[:4])} ...:\n{result.stderr.strip()}")


def shared_parts(variant: Variant, place: Path) -> Iterator[Callable[[], object]]:
    """What the tests of the gate share, each part for a thread of its own: the stub driver, the library, fakes."""
    sanitize = ["--sanitize", variant.sanitizer] if variant.sanitizer else []
    yield lambda: execute([sys.executable, str(EMULATOR), str(place), *sanitize, "driver"])
    sources = [str(path) for path in build.sources() if path.name not in INTERPOSERS]
    gate = [*compiler(), *flags(variant), "-r", "-fvisibility=hidden", *sources, "-o", str(place / "gate.o")]
    yield lambda: execute(gate)
    if variant.sanitizer is None:
        yield lambda: build.build(place / "libcarpool.so")
        yield lambda: build_fakes(variant, place)


def build_fakes(variant: Variant, place: Path) -> None:
    for name in FAKE_LIBRARIES:
        macro = name.split(".")[0].upper()
        command = [*compiler(), *flags(variant), "-fPIC", "-shared", f"-D{macro}", str(FAKES)]
        execute([*command, "-o", str(place / name)])


def compile_test(case: Case) -> None:
    """Raises BuildError."""
    case.program.parent.mkdir(parents=True, exist_ok=True)
    linked: list[str] = []
    if case.needs_driver:
        linked = [] if case.name == PRELOADED else [str(case.place / "gate.o")]
        linked.append(str(case.place / "libcuda.so.1"))
    execute([*compiler(), *flags(case.variant), str(case.source), *linked, "-o", str(case.program), *LIBRARIES])


# ---- running -------------------------------------------------------------------------------------------------------


def environment(case: Case, scratch: Path) -> dict[str, str]:
    variables = {**os.environ, **ENVIRONMENT}
    if case.needs_driver:
        variables |= {"LD_LIBRARY_PATH": str(case.place), "EMULATOR_STATE": str(scratch)}
        if case.name == PRELOADED and case.variant.sanitizer is None:
            variables["LD_PRELOAD"] = str(case.place / "libcarpool.so")
    return variables


class Groups:
    """The process groups of the tests that run now: a test's own children end with it."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    @contextmanager
    def running(self, command: Sequence[str], variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._running.add(process)
        if self._stopped:  # a test whose compiler was still at work
            kill_group(process)
        try:
            yield process
        finally:
            self._running.discard(process)

    def stop(self) -> None:
        """No test runs any more from now on."""
        self._stopped = True
        for process in tuple(self._running):
            kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run_program(case: Case, groups: Groups) -> Outcome:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        variables = environment(case, Path(scratch) / "stub")
        with groups.running([str(case.program)], variables) as process:
            status, output = wait(process, case.variant.budget_s)
    return Outcome(case, status, output, time.monotonic() - begin)


def wait(process: subprocess.Popen[bytes], budget_s: float) -> tuple[int, str]:
    try:
        output, _ = process.communicate(timeout=budget_s)
    except subprocess.TimeoutExpired:
        kill_group(process)
        output, _ = process.communicate()
        return TIMED_OUT, f"stopped after {budget_s} s, its budget\n{output.decode(errors='replace')}"
    return process.returncode, output.decode(errors="replace").strip()


def compile_and_run(case: Case, groups: Groups) -> Outcome:
    try:
        compile_test(case)
    except BuildError as error:
        return Outcome(case, NOT_BUILT, str(error), 0, built=False)
    return run_program(case, groups)


def outcomes(cases: Sequence[Case], jobs: int) -> Iterator[Outcome]:
    """In the order in which the tests end.  Raises BuildError when what they share cannot be built."""
    groups = Groups()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            places = {case.variant: case.place for case in cases if case.needs_driver}
            parts = [pool.submit(part) for variant, place in places.items() for part in shared_parts(variant, place)]
            for part in parts:
                part.result()
            tests = [pool.submit(compile_and_run, case, groups) for case in cases]
            yield from (done.result() for done in as_completed(tests))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            groups.stop()
            raise


def run_all(cases: Sequence[Case], jobs: int) -> list[Outcome]:
    """Prints each test when it has ended.  Raises BuildError."""
    found: list[Outcome] = []
    for outcome in outcomes(cases, jobs):
        found.append(outcome)
        print(outcome if outcome.status == PASSED else f"{outcome}\n{outcome.output}", flush=True)
    return found


# ---- reports -------------------------------------------------------------------------------------------------------


def report(found: Sequence[Outcome]) -> None:
    """Failures are said again at the end: where only the end of a log is kept, they are in it."""
    failures = [outcome for outcome in found if outcome.failed]
    for outcome in failures:
        print(f"--- {outcome}\n{outcome.output}")
    print(f"{len(found) - len(failures)} passed, {len(failures)} failed")


def status_of(found: Sequence[Outcome]) -> int:
    """Of the whole run."""
    if not all(outcome.built for outcome in found):
        return NOT_BUILT
    return FAILED if any(outcome.failed for outcome in found) else PASSED


def write_junit(found: Sequence[Outcome], path: Path) -> None:
    """JUnit XML; a test's time is that of its run, without compiling."""
    suite = ElementTree.Element(
        "testsuite",
        name="native",
        tests=str(len(found)),
        failures=str(sum(outcome.failed for outcome in found)),
        skipped=str(sum(outcome.status == SKIPPED for outcome in found)),
        time=f"{sum(outcome.seconds for outcome in found):.3f}",
    )
    suite.extend(test_element(outcome) for outcome in found)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def test_element(outcome: Outcome) -> ElementTree.Element:
    folder, _, name = outcome.case.name.partition("/")
    element = ElementTree.Element(
        "testcase",
        classname=f"native.tests.{folder}",
        name=f"{name}[{outcome.case.variant.name}]",
        time=f"{outcome.seconds:.3f}",
    )
    if outcome.status != PASSED:
        kind = "failure" if outcome.failed else "skipped"
        ElementTree.SubElement(element, kind, message=str(outcome)).text = printable(outcome.output)
    return element


def printable(text: str) -> str:
    """XML cannot hold other control characters than these."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


# ---- the command line ----------------------------------------------------------------------------------------------


def chosen(directory: Path, variants: Sequence[Variant], names: Sequence[str]) -> list[Case]:
    """Raises BuildError: there is no such test."""
    for variant in variants:
        (directory / variant.name).mkdir(parents=True, exist_ok=True)
    sources = sorted(TESTS.glob("*/test_*.c"))
    cases = [Case(source, variant, directory / variant.name) for variant in variants for source in sources]
    cases = [case for case in cases if case.variant.name != THREAD.name or case.name in THREADED]
    if unknown := set(names) - {case.name for case in cases}:
        raise BuildError(f"no such C test: {', '.join(sorted(unknown))}; a name is like cuda/test_gate")
    return [case for case in cases if not names or case.name in names]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compile and run the C tests")
    parser.add_argument("--variants", choices=sorted(VARIANTS), default="plain", help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at a time (default: %(default)s)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="of one test, instead of its variant's")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write durations and failures as JUnit XML")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the programs in this directory")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these tests (as cuda/test_gate)")
    return parser.parse_args()


def variants_of(options: argparse.Namespace) -> list[Variant]:
    found = VARIANTS[options.variants]
    return [replace(variant, budget_s=options.budget or variant.budget_s) for variant in found]


def main() -> int:
    options = parsed()
    try:
        with tempfile.TemporaryDirectory() as directory:
            cases = chosen(options.keep or Path(directory), variants_of(options), options.names)
            found = run_all(cases, options.jobs)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_BUILT
    report(found)
    if options.junit:
        write_junit(found, options.junit)
    return status_of(found)


if __name__ == "__main__":
    sys.exit(main())
