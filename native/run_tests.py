"""Compile and run the C tests: plainly, under the address sanitizer and under the undefined-behaviour sanitizer.

Every ``native/tests/FOLDER/test_*.c`` is a program of its own.  It includes the library sources that it tests, so it
needs no other object file.  Exit status 0 is success, 77 is a skip whose reason the test has printed.

Those of ``cuda/`` test the gate: they are linked with the library's objects and run on the stub driver
(``tests/stub``).  ``cuda/test_routes`` has the built library preloaded instead, as jobs have.

Standard library only: ``python3 native/run_tests.py [--keep DIR] [name...]``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import build
from build import LIBRARIES, NATIVE, BuildError, compiler

WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Werror"]
VARIANTS = {
    "plain": ["-O2", "-g"],
    "asan": ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address"],
    "ubsan": ["-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=all"],
}
ENVIRONMENT = {
    # The library handles SIGSEGV itself and interposes malloc's relatives: ASan must leave both alone.
    "ASAN_OPTIONS": "handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1:detect_leaks=0:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:handle_segv=0:handle_sigbus=0",
}
SANITIZE = {"plain": None, "asan": "address", "ubsan": "undefined"}
SKIPPED = 77
TIMEOUT_S = 120

GATE = "cuda/"
PRELOADED = "cuda/test_routes"
#: Includes the one source that it tests, and needs no driver.
STANDALONE = "cuda/test_visible_devices"
TESTS = NATIVE / "tests"
STUB = NATIVE.parent / "tests" / "stub" / "build.py"
#: These stand before libc's functions, which belong to the sanitizers in a test.
INTERPOSERS = {"dlsym.c", "io_bounce.c", "malloc_hooks.c", "signals.c"}


def name_of(source: Path) -> str:
    """``FOLDER/test_NAME``."""
    return str(source.relative_to(TESTS).with_suffix(""))


def flags(variant: str) -> list[str]:
    return ["-std=gnu11", *WARNINGS, *VARIANTS[variant], f"-I{NATIVE}"]


def execute(command: list[str]) -> None:
    """Raises BuildError."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"{' '.join(command[:4])} ...:\n{result.stderr.strip()}")


def prepare_gate(variant: str, directory: Path) -> None:
    """What tests of the gate need, below ``directory/VARIANT``: the stub driver, the library or its objects, fakes."""
    place = directory / variant
    place.mkdir(exist_ok=True)
    sanitize = SANITIZE[variant]
    execute([sys.executable, str(STUB), str(place), *(["--sanitize", sanitize] if sanitize else [])])
    sources = [str(path) for path in build.sources() if path.name not in INTERPOSERS]
    execute([*compiler(), *flags(variant), "-r", "-fvisibility=hidden", *sources, "-o", str(place / "gate.o")])
    if variant == "plain":
        build.build(place / "libcarpool.so")
        fakes = TESTS / "cuda" / "fake_caller.c"
        for name in ("libcudart.so.12", "libc10_cuda.so", "libnccl.so.2"):
            macro = name.split(".")[0].upper()
            execute(
                [*compiler(), *flags(variant), "-fPIC", "-shared", f"-D{macro}", str(fakes), "-o", str(place / name)]
            )


def compile_test(source: Path, variant: str, directory: Path) -> tuple[Path, str]:
    """Returns the program and the compiler's complaint ("" if there is none)."""
    name = name_of(source)
    program = directory / variant / name
    program.parent.mkdir(parents=True, exist_ok=True)
    linked: list[str] = []
    if name.startswith(GATE) and name != STANDALONE:
        linked = [str(directory / variant / "libcuda.so.1")]
        if name != PRELOADED:
            linked.insert(0, str(directory / variant / "gate.o"))
    command = [*compiler(), *flags(variant), str(source), *linked, "-o", str(program)]
    result = subprocess.run([*command, *LIBRARIES], capture_output=True, text=True, check=False)
    return program, result.stderr.strip() if result.returncode else ""


def environment(name: str, variant: str, place: Path, scratch: Path) -> dict[str, str]:
    variables = {**os.environ, **ENVIRONMENT}
    if name.startswith(GATE):
        variables |= {"LD_LIBRARY_PATH": str(place), "CARPOOL_STUB": str(scratch)}
        if name == PRELOADED and variant == "plain":
            variables["LD_PRELOAD"] = str(place / "libcarpool.so")
    return variables


def run_test(name: str, variant: str, place: Path) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as scratch:
        return run_in(place / name, environment(name, variant, place, Path(scratch) / "stub"))


def run_in(program: Path, variables: dict[str, str]) -> tuple[int, str]:
    try:
        result = subprocess.run(
            [str(program)],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return 124, f"no end after {TIMEOUT_S} s\n{(error.stdout or b'').decode(errors='replace')}"
    return result.returncode, result.stdout.decode(errors="replace").strip()


def run_all(sources: list[Path], directory: Path) -> int:
    """Returns the number of failures, said again at the end: where only the end of a log is kept, they are in it.

    Compiles in parallel, then runs one at a time: some tests depend on time.
    """
    cases = [(source, variant) for source in sources for variant in VARIANTS]
    failures: list[str] = []
    if any(name_of(source).startswith(GATE) for source in sources):
        for variant in VARIANTS:
            prepare_gate(variant, directory)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = list(pool.map(lambda case: compile_test(case[0], case[1], directory), cases))
    for (source, variant), (_, complaint) in zip(cases, compiled, strict=True):
        status, output = (1, complaint) if complaint else run_test(name_of(source), variant, directory / variant)
        word = {0: "ok", SKIPPED: "skipped"}.get(status, f"FAILED (status {status})")
        print(f"{name_of(source)} [{variant}]: {word}")
        if status != 0:
            print(output)
        if status not in (0, SKIPPED):
            failures.append(f"{name_of(source)} [{variant}]: {word}\n{output}")
    for failure in failures:
        print(f"--- {failure}")
    print(f"{len(cases) - len(failures)} passed, {len(failures)} failed")
    return len(failures)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile and run the C tests in every variant")
    parser.add_argument("--keep", type=Path, help="leave the programs in this directory")
    parser.add_argument("names", nargs="*", help="only these tests (as `cuda/test_gate`)")
    options = parser.parse_args()
    sources = [s for s in sorted(TESTS.glob("*/test_*.c")) if not options.names or name_of(s) in options.names]
    if not sources:
        print("error: no such C test", file=sys.stderr)
        return 1
    try:
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            return 1 if run_all(sources, options.keep) else 0
        with tempfile.TemporaryDirectory() as directory:
            return 1 if run_all(sources, Path(directory)) else 0
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
