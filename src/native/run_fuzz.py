"""Build the fuzzing targets of ``src/native/fuzz`` and run them: replay corpora, look for new inputs, shrink a corpus.

Every ``src/native/fuzz/target_NAME.c`` is a program of its own, linked with ``driver.c`` and built under the address
and the undefined-behaviour sanitizer (``--plain``: without, which takes a fifth of the time).
``src/native/fuzz/corpus/NAME`` has inputs that reach its code, and those that once broke it.

Standard library only: ``python3 src/native/run_fuzz.py replay|fuzz|merge [--plain] [--seconds N] [--seed N] [--out DIR]
[NAME...]``.  What is new, and what breaks a target, is left in DIR (``build/fuzz``); ``merge`` leaves in DIR/small what
of the corpus and of DIR reaches code that smaller inputs do not.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from build import LIBRARIES, NATIVE, BuildError, compiler
from run_tests import ENVIRONMENT, WARNINGS, execute

FUZZ = NATIVE / "fuzz"
CORPUS = FUZZ / "corpus"
OUT = NATIVE.parents[1] / "build" / "fuzz"
FLAGS = ["-std=gnu11", *WARNINGS, f"-I{NATIVE}", "-O1"]
SANITIZERS = ["-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COVERAGE = "-fsanitize-coverage=trace-pc"
#: Crashes are for the sanitizer to report; memory that there is not is an answer that the library deals with.
OPTIONS = {"ASAN_OPTIONS": "handle_segv=1:detect_leaks=0:allocator_may_return_null=1:allow_user_segv_handler=1"}


@dataclass(frozen=True)
class Outcome:
    target: str
    status: int
    output: str

    def __str__(self) -> str:
        return f"{self.target}: {self.output}" if not self.status else f"{self.target}: FAILED\n{self.output}"


def targets() -> list[str]:
    return sorted(path.stem.removeprefix("target_") for path in FUZZ.glob("target_*.c"))


def build(names: Sequence[str], place: Path, jobs: int, *, plain: bool) -> None:
    """The driver has no coverage of its own.  Raises BuildError."""
    driver, flags = str(place / "driver.o"), FLAGS if plain else [*FLAGS, *SANITIZERS]
    execute([*compiler(), *flags, "-c", str(FUZZ / "driver.c"), "-o", driver])

    def one(name: str) -> None:
        source, program = str(FUZZ / f"target_{name}.c"), str(place / name)
        execute([*compiler(), *flags, COVERAGE, source, driver, "-o", program, *LIBRARIES])

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, names))


def run(target: str, arguments: Sequence[str], place: Path, out: Path) -> Outcome:
    crashes = out / "crashes"
    crashes.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, **ENVIRONMENT, **OPTIONS, "FUZZ_CRASHES": str(crashes)}
    done = subprocess.run([str(place / target), *arguments], env=variables, capture_output=True, text=True, check=False)
    return Outcome(target, done.returncode, (done.stdout + (done.stderr if done.returncode else "")).strip())


def arguments_of(target: str, options: argparse.Namespace) -> list[str]:
    """Of the driver."""
    corpus, found = CORPUS / target, options.out / target
    found.mkdir(parents=True, exist_ok=True)
    if options.mode == "fuzz":
        return ["fuzz", str(options.seconds), str(options.seed), str(corpus), str(found)]
    if options.mode == "merge":
        small = options.out / "small" / target
        small.mkdir(parents=True, exist_ok=True)
        return ["merge", str(corpus), str(found), str(small)]
    return ["replay", str(corpus)]


def outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    """Raises BuildError."""
    names = options.names or targets()
    if unknown := set(names) - set(targets()):
        raise BuildError(f"no such target: {', '.join(sorted(unknown))}; there are: {', '.join(targets())}")
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(options.jobs) as pool:
        place = Path(directory)
        build(names, place, options.jobs, plain=options.plain)
        yield from pool.map(lambda name: run(name, arguments_of(name, options), place, options.out), names)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fuzz the C library")
    parser.add_argument("mode", choices=("replay", "fuzz", "merge"))
    parser.add_argument("--plain", action="store_true", help="without sanitizers")
    parser.add_argument("--seconds", type=int, default=10, help="of each target (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="default: a new one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="default: build/fuzz")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these targets")
    return parser.parse_intermixed_args()


def main() -> int:
    options = parsed()
    failed = 0
    if options.mode == "fuzz":
        print(f"seed {options.seed}", flush=True)
    try:
        for outcome in outcomes(options):
            failed += outcome.status != 0
            print(outcome, flush=True)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
