"""``python -m benchmarks [--quick] [--label LABEL] [NAME...]``: measure, print, write a dated result file.

That is ``benchmarks/results/DATE-CPU[-LABEL].{json,md}``; a second run on a day with the same label replaces the first.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import sys
import time
from pathlib import Path

from benchmarks.figures import Figure, Skipped
from benchmarks.machine import describe
from benchmarks.report import Report

RESULTS = Path(__file__).resolve().parent / "results"


#: A program of its own, without the rest of this package; `bench_decisions` runs it.
PROGRAMS = {"core"}


def available() -> list[str]:
    found = {path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")}
    return sorted(found - PROGRAMS)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few runs: to see whether it works, not to quote")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for the result file")
    parser.add_argument("--label", default="", help="for the result file's name, where not everything is measured")
    parser.add_argument("names", nargs="*", help=f"only these of: {', '.join(available())}")
    options = parser.parse_args()
    unknown = set(options.names) - set(available())
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; there are {', '.join(available())}")
    return options


def measure(name: str, quick: bool, report: Report) -> None:
    """A benchmark that cannot run here, or breaks, does not take the others with it."""
    begin = time.monotonic()
    try:
        figures: list[Figure] = importlib.import_module(f"benchmarks.bench_{name}").run(quick)
    except Skipped as reason:
        report.skipped[name] = str(reason)
        print(f"{name}: skipped: {reason}", flush=True)
        return
    except Exception as error:  # noqa: BLE001 - recorded in the result file, and the exit status says so
        report.failed[name] = f"{type(error).__name__}: {error}"
        print(f"{name}: FAILED: {error}", flush=True)
        return
    report.figures += figures
    print(
        f"{name} ({time.monotonic() - begin:.0f} s)\n" + "\n".join(f"  {report.line(f)}" for f in figures), flush=True
    )


def main() -> int:
    options = parse_arguments()
    today = datetime.datetime.now(tz=datetime.UTC).date()
    report = Report(today.isoformat(), describe(), options.quick)
    for name in options.names or available():
        measure(name, options.quick, report)
    print(f"written: {report.write(options.out, options.label)}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
