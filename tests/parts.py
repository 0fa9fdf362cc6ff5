"""Parts of `make test` and `make test-all`: run beside each other, and kept with the commit on which each has passed.

``python -m tests.parts run TIER [PART...]`` runs parts of a tier, `list` says what has passed on which commit.  A part
of `make test-all` that has passed on this very commit is named and not run again.  Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "build" / "parts"
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Part:
    """A target of make.

    Those ``beside`` run while the others do, one after another, and what they print comes when they have ended.
    """

    name: str
    target: str
    beside: bool = False


def _beside(*targets: str) -> tuple[Part, ...]:
    return tuple(Part(target, target, beside=True) for target in targets)


#: Of the Python tests in `make test-all`; `tests/tiers.py` says which folders are in which.
PYTHON_PARTS = ("core", "daemon", "cli", "jobs", "gpu", "elsewhere")
STATIC = _beside("lint", "typecheck")
TIERS: dict[str, tuple[Part, ...]] = {
    "check": (Part("pytest-check", "pytest-check"), *STATIC),
    "test": (Part("pytest", "pytest"), *_beside("native-test", "native-fuzz-replay"), *STATIC),
    "all": (
        *(Part(name, f"pytest-all PART={name}") for name in PYTHON_PARTS),
        *_beside("native-test-long", "native-test-sanitized", "native-test-threads", "native-fuzz"),
        *STATIC,
    ),
    "versions": (Part("torch-2.11", "pytest-older"), Part("torch-2.6", "pytest-oldest")),
    "engines": (Part("engines", "pytest-engines"),),
}
#: The tiers that run by hand, and the titles of their dated pages.
BY_HAND = {
    "versions": "Other versions of PyTorch on the emulated GPU",
    "engines": "Servers of language models beside training",
}


@dataclass(frozen=True)
class Record:
    """One part that has run.  ``cpu_s`` is of the processes that were waited for: what daemons start has its own."""

    part: str
    passed: bool
    commit: str
    at: str
    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        word = "passed" if self.passed else "FAILED"
        took = f"{self.wall_s:.0f} s, {self.cpu_s:.0f} s of processors"
        name, _, changed = self.commit.partition("-")
        where = f"{name[:12] or 'several commits'}{' with changed files' if changed else ''}"
        return f"{self.part:24}{word} on {where} at {self.at}: {took}"


def commit() -> str:
    """What is checked out; ``-changed`` stands behind it where files differ from it."""
    name = _git("rev-parse", "HEAD")
    return f"{name}-changed" if _git("status", "--porcelain") else name


def _git(*arguments: str) -> str:
    """Empty outside of a checkout: an archive of the sources has no commit."""
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip()


def run(part: Part) -> Record:
    """Raises OSError: there is no make."""
    began, here = time.monotonic(), commit()
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    environment |= {"NATIVE_JOBS": "1"} if part.beside else {}
    more: dict[str, int] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if part.beside else {}
    command = ["make", "--no-print-directory", *part.target.split()]
    with subprocess.Popen(command, cwd=ROOT, env=environment, **more) as process:  # type: ignore[call-overload]
        output = process.stdout.read() if part.beside else b""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    record = Record(
        part.name,
        process.returncode == 0,
        here if commit() == here else "",
        datetime.now().astimezone().isoformat(timespec="seconds"),
        time.monotonic() - began,
        usage.ru_utime + usage.ru_stime,
    )
    print(f"{output.decode(errors='replace')}{record}", flush=True)
    return record


def keep(record: Record) -> None:
    """What is not passed on a commit leaves nothing that says that it is."""
    file = RECORDS / f"{record.part}.json"
    if not record.passed:
        file.unlink(missing_ok=True)
        return
    RECORDS.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(record)))


def kept(part: Part) -> Record | None:
    try:
        return Record(**json.loads((RECORDS / f"{part.name}.json").read_text()))
    except FileNotFoundError:
        return None


def run_all(parts: Iterable[Part]) -> list[Record]:
    """What is beside has a thread of its own.  Where this one is interrupted, no further part begins."""
    parts, found, stopped = tuple(parts), [], threading.Event()

    def several(beside: bool) -> None:
        for part in parts:
            if part.beside == beside and not stopped.is_set():
                found.append(run(part))
                keep(found[-1])

    thread = threading.Thread(target=several, args=(True,))
    thread.start()
    try:
        several(False)
    except BaseException:
        stopped.set()
        raise
    finally:
        thread.join()
    return found


def chosen(tier: str, names: Sequence[str]) -> list[Part]:
    """Raises SystemExit: there is no such part."""
    known = {part.name: part for part in TIERS[tier]}
    if unknown := sorted(set(names) - set(known)):
        sys.exit(f"error: `{tier}` has no part {', '.join(unknown)}; it has {', '.join(known)}")
    return [known[name] for name in names or known]


def still_to_run(parts: Iterable[Part]) -> list[Part]:
    """Those that have not passed on this very commit."""
    here, todo = commit(), []
    for part in parts:
        record = kept(part)
        if here and not here.endswith("-changed") and record and record.commit == here:
            print(f"{record}: not run again (AGAIN=1 runs it)")
        else:
            todo.append(part)
    return todo


def figures(tier: str) -> list[str]:
    """What the tests of a tier that runs by hand have recorded as properties, and which were skipped."""
    from xml.etree import ElementTree

    if not _report(tier).exists():
        return []
    cases = ElementTree.parse(_report(tier)).iter("testcase")
    return [f"{case.get('name')}: {_figures_of(case)}" for case in cases]


def _report(tier: str) -> Path:
    return ROOT / "build" / "reports" / f"{tier}.xml"


def _figures_of(case: Element) -> str:
    skipped = [f"skipped, {each.get('message')}" for each in case.iter("skipped")]
    wrong = ["FAILED" for _ in (*case.iter("failure"), *case.iter("error"))]
    found = [f"{each.get('name')} {each.get('value')}" for each in case.iter("property")]
    return "; ".join([*skipped, *wrong, *found]) or "passed"


def write_result(tier: str, found: Iterable[Record], directory: Path = RESULTS) -> Path:
    """A dated page with the machine: what runs by hand is known by it."""
    from benchmarks.machine import describe, slug

    machine = describe()
    page = directory / f"{datetime.now().astimezone().date()}-{slug(str(machine['cpu']))}-{tier}.md"
    lines = [*sorted(map(str, found)), *figures(tier), *(f"{name}: {value}" for name, value in machine.items())]
    page.write_text("\n".join([f"# {BY_HAND[tier]}", "", *map("- {}".format, lines), ""]))
    return page


def listing() -> None:
    print(f"this is {commit()}")
    for parts in TIERS.values():
        for part in parts:
            print(kept(part) or f"{part.name:24}has not passed here")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.parts", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    running = commands.add_parser("run")
    running.add_argument("tier", choices=TIERS)
    running.add_argument("parts", nargs="*")
    running.add_argument("--again", action="store_true", help="those too that have passed on this commit")
    commands.add_parser("list")
    options = parser.parse_args()
    if options.command == "list":
        listing()
        return 0
    parts = chosen(options.tier, options.parts)
    parts = parts if options.again or options.tier in ("check", "test") else still_to_run(parts)
    if options.tier in BY_HAND and parts:
        _report(options.tier).unlink(missing_ok=True)
    found = run_all(parts)
    print("\n".join(["", *map(str, sorted(found, key=lambda record: record.passed, reverse=True))]))
    if options.tier in BY_HAND:
        print(f"written: {write_result(options.tier, found)}")
    return 0 if all(record.passed for record in found) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
