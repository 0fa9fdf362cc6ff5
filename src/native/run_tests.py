"""Compile and run the C tests, several at a time: plainly, or under the address and undefined-behaviour sanitizers.

Those that repeat something do it less often in a plain run, unless it is ``--long``; nothing else differs.

Every ``src/native/tests/FOLDER/test_*.c`` is a program of its own.  It includes the library sources that it tests, so
it needs no other object file.  Exit status 0 is success, 77 is a skip whose reason the test has printed.
The run's own is 0, 1 where a test failed, 2 where something could not be compiled.

Those of ``cuda/`` test the gate: they are linked with the library's objects and run on the stub driver
(``tools/emulator/``).  ``cuda/test_routes`` has the built library preloaded instead, as jobs have: it is compiled here
unless ``--library`` says where it is.  What has been compiled stays in ``build/native-tests``, and is compiled again
when one of its sources, its command or the compiler is another.

A test that takes longer than its budget (``--budget``, or its variant's) is stopped and has failed.

Standard library only: ``python3 src/native/run_tests.py [--variants plain|sanitized|threads] [--long] [--junit FILE]
[NAME...]``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
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


LONG_ROUNDS = "-DLONG_ROUNDS"
SANITIZED = ("-O1", "-g", LONG_ROUNDS, "-fno-omit-frame-pointer")
PLAIN = Variant("plain", ("-O1",), None, 120)
LONG = Variant("long", ("-O2", "-g", LONG_ROUNDS), None, 120)
ADDRESS = Variant("asan", (*SANITIZED, "-fsanitize=address"), "address", 180)
UNDEFINED = Variant("ubsan", (*SANITIZED, "-fsanitize=undefined", "-fno-sanitize-recover=all"), "undefined", 180)
THREAD = Variant("tsan", (*SANITIZED, "-fsanitize=thread"), "thread", 180)
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
EMULATOR = NATIVE.parents[1] / "tools" / "emulator" / "build.py"
PLACE = NATIVE.parents[1] / "build" / "native-tests"
DRIVER, LIBRARY = "libcuda.so.1", "libcarpool.so"
#: These stand before libc's functions, which belong to the sanitizers in a test.
INTERPOSERS = {"dlsym.c", "io_bounce.c", "malloc_hooks.c", "memory_advice.c", "signals.c"}
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


# ---- what has been compiled before ---------------------------------------------------------------------------------


@cache
def shared_digest() -> bytes:
    """Hash the compiler's version and every source that a test may include, except the test's own file."""
    digest = hashlib.sha256(subprocess.run([*compiler(), "--version"], capture_output=True, check=False).stdout)
    folders = (*(NATIVE / name for name in (*build.FOLDERS, "abi", "tests")), EMULATOR.parent / "driver")
    files = (path for folder in folders for path in folder.rglob("*") if not path.name.startswith("test_"))
    for path in sorted({EMULATOR, *files}):
        if path.is_file():
            digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.digest()


def once(output: Path, ingredients: Sequence[str], make: Callable[[], object]) -> None:
    """Make the file, unless it has been made of the same."""
    key = hashlib.sha256("\0".join(ingredients).encode() + shared_digest()).hexdigest()
    stamp = output.with_name(f"{output.name}.key")
    if output.exists() and stamp.exists() and stamp.read_text() == key:
        return
    stamp.unlink(missing_ok=True)
    make()
    stamp.write_text(key)


def compile_once(output: Path, command: Sequence[str], own: str = "") -> None:
    """``own``: what the output is made of besides what all share.  Raises BuildError."""
    partial = output.with_name(f"{output.name}.{os.getpid()}.tmp")

    def make() -> None:
        execute([*command, "-o", str(partial)])
        partial.replace(output)

    once(output, [*command, own], make)


def linked(output: Path, target: Path) -> None:
    """Link ``output`` to a library that has been compiled already."""
    output.with_name(f"{output.name}.key").unlink(missing_ok=True)
    partial = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    partial.symlink_to(target.resolve())
    partial.replace(output)


# ---- compiling -----------------------------------------------------------------------------------------------------


def flags(variant: Variant) -> list[str]:
    return ["-std=gnu11", *WARNINGS, *variant.flags, f"-I{NATIVE}"]


def execute(command: Sequence[str]) -> None:
    """Raises BuildError."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"{' '.join(command[:4])} ...:\n{result.stderr.strip()}")


def shared_parts(variant: Variant, place: Path, library: Path | None) -> Iterator[Callable[[], object]]:
    """What the tests of the gate share, each part for a thread of its own: the stub driver, the library, fakes."""
    yield lambda: build_driver(variant, place)
    sources = [str(path) for path in build.sources() if path.name not in INTERPOSERS]
    gate = [*compiler(), *flags(variant), "-r", "-fvisibility=hidden", *sources]
    yield lambda: compile_once(place / "gate.o", gate)
    if variant.sanitizer is None:
        yield lambda: place_library(place / LIBRARY, library)
        yield lambda: build_fakes(variant, place)


def build_driver(variant: Variant, place: Path) -> None:
    sanitize = ["--sanitize", variant.sanitizer] if variant.sanitizer else []
    command = [sys.executable, str(EMULATOR), str(place), *sanitize, "driver"]
    once(place / DRIVER, command, lambda: execute(command))


def place_library(output: Path, built: Path | None) -> None:
    if built:
        return linked(output, built)
    return once(output, build.command_line(output, strict=False), lambda: build.build(output))


def build_fakes(variant: Variant, place: Path) -> None:
    for name in FAKE_LIBRARIES:
        macro = name.split(".")[0].upper()
        compile_once(place / name, [*compiler(), *flags(variant), "-fPIC", "-shared", f"-D{macro}", str(FAKES)])


def compile_test(case: Case) -> None:
    """Raises BuildError."""
    case.program.parent.mkdir(parents=True, exist_ok=True)
    objects: list[str] = []
    if case.needs_driver:
        objects = [] if case.name == PRELOADED else [str(case.place / "gate.o")]
        objects.append(str(case.place / DRIVER))
    command = [*compiler(), *flags(case.variant), str(case.source), *objects, *LIBRARIES]
    compile_once(case.program, command, case.source.read_text())


# ---- running -------------------------------------------------------------------------------------------------------


def environment(case: Case, scratch: Path) -> dict[str, str]:
    variables = {**os.environ, **ENVIRONMENT}
    if case.needs_driver:
        variables |= {"LD_LIBRARY_PATH": str(case.place), "EMULATOR_STATE": str(scratch), "EMULATOR_CONTEXT": "0"}
        if case.name == PRELOADED and case.variant.sanitizer is None:
            variables["LD_PRELOAD"] = str(case.place / LIBRARY)
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


def outcomes(cases: Sequence[Case], jobs: int, library: Path | None = None) -> Iterator[Outcome]:
    """In the order in which the tests end.  Raises BuildError when what they share cannot be built."""
    groups = Groups()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            places = {case.variant: case.place for case in cases if case.needs_driver}
            parts = [pool.submit(part) for one in places.items() for part in shared_parts(*one, library)]
            for part in parts:
                part.result()
            tests = [pool.submit(compile_and_run, case, groups) for case in cases]
            yield from (done.result() for done in as_completed(tests))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            groups.stop()
            raise


def run_all(cases: Sequence[Case], jobs: int, library: Path | None = None) -> list[Outcome]:
    """Prints each test when it has ended.  Raises BuildError."""
    found: list[Outcome] = []
    for outcome in outcomes(cases, jobs, library):
        found.append(outcome)
        print(outcome if outcome.status == PASSED else f"{outcome}\n{outcome.output}", flush=True)
    return found


# ---- reports -------------------------------------------------------------------------------------------------------


def report(found: Sequence[Outcome]) -> None:
    """Failures are said again at the end: where only the end of a log is kept, they are in it."""
    failures = [outcome for outcome in found if outcome.failed]
    for outcome in failures:
        print(f"--- {outcome}\n{outcome.output}")
    print(f"{len(found) - len(failures)} passed, {len(failures)} failed, {processor_s():.0f} s of processor time")


def processor_s() -> float:
    """Of all compilers and tests."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    folder, _, name = outcome.case.name.rpartition("/")
    element = ElementTree.Element(
        "testcase",
        classname=f"native.tests.{folder.replace('/', '.')}",
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
    sources = sorted(TESTS.rglob("test_*.c"))
    cases = [Case(source, variant, directory / variant.name) for variant in variants for source in sources]
    cases = [case for case in cases if case.variant.name != THREAD.name or case.name in THREADED]
    if unknown := set(names) - {case.name for case in cases}:
        raise BuildError(f"no such C test: {', '.join(sorted(unknown))}; a name is like cuda/test_gate")
    return [case for case in cases if not names or case.name in names]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compile and run the C tests")
    parser.add_argument("--variants", choices=sorted(VARIANTS), default="plain", help="default: %(default)s")
    parser.add_argument("--long", action="store_true", help="repeat as often as under sanitizers, with -O2")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at a time (default: %(default)s)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="of one test, instead of its variant's")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write durations and failures as JUnit XML")
    parser.add_argument(
        "--place", type=Path, metavar="DIR", default=PLACE, help="of the programs (default: %(default)s)"
    )
    parser.add_argument("--library", type=Path, metavar="FILE", help=f"{LIBRARY}, compiled from this tree")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these tests (as cuda/test_gate)")
    return parser.parse_args()


def variants_of(options: argparse.Namespace) -> list[Variant]:
    found = VARIANTS[options.variants]
    if options.long:
        found = tuple(LONG if variant is PLAIN else variant for variant in found)
    return [replace(variant, budget_s=options.budget or variant.budget_s) for variant in found]


def main() -> int:
    options = parsed()
    try:
        cases = chosen(options.place.absolute(), variants_of(options), options.names)
        found = run_all(cases, options.jobs, options.library)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_BUILT
    report(found)
    if options.junit:
        write_junit(found, options.junit)
    return status_of(found)


if __name__ == "__main__":
    sys.exit(main())
