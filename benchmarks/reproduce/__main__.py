"""``python -m benchmarks.reproduce [--traces DIR] [--seeds N] [--out FILE] [--docs]``: some minutes, no accelerator."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.reproduce import carma, inference, philly, sweeps, table1
from benchmarks.reproduce.results import PAGE, RESULTS, SUFFIX, newest, renewed, write
from benchmarks.reproduce.runs import Data

TRACE_FILES = {"philly": (philly.FILE,), "carma": tuple(f"{name}.csv" for name in carma.TRACES)}
TRACE_PARTS: dict[str, Callable[[Path], Data]] = {"philly": philly.run, "carma": carma.run}


def parse_arguments() -> argparse.Namespace:
    today = datetime.datetime.now(tz=datetime.UTC).date()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce", description=__doc__)
    parser.add_argument("--traces", type=Path, default=os.environ.get("CARPOOL_TRACES"),
                        help="directory with the traces of others; default: CARPOOL_TRACES")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=50, help="made-up traces of Salus's table 1")
    parser.add_argument("--out", type=Path, default=RESULTS / f"{today.isoformat()}{SUFFIX}",
                        help="the JSON file; the Markdown goes beside it")  # fmt: skip
    parser.add_argument(
        "--only", choices=(*TRACE_PARTS,), help="run this part again; the rest is that of the newest result"
    )
    parser.add_argument("--docs", action="store_true", help="put the tables into benchmarks/reproductions.md")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error("--seeds must be at least 1")
    return options


def again(part: str, traces: Path | None) -> Data:
    """The newest stored result with one part made anew."""
    stored: Data = json.loads(newest().read_text(encoding="utf-8"))
    return stored | {part: trace_part(part, traces)}


def reproduce(seeds: int, traces: Path | None) -> Data:
    print("table1, sweeps, inference ...", flush=True)
    data: Data = {"seeds": seeds, "table1": table1.run(seeds), "sweeps": sweeps.run(), "inference": inference.run()}
    return data | {name: trace_part(name, traces) for name in TRACE_PARTS}


def trace_part(name: str, directory: Path | None) -> Data:
    """Empty where its files are missing."""
    missing = [file for file in TRACE_FILES[name] if directory is None or not (directory / file).exists()]
    if directory is not None and name == "carma" and not carma.catalogue(directory).exists():
        missing.append(carma.CATALOGUE)
    if directory is None or missing:
        print(f"{name}: skipped: --traces names no directory with {' and '.join(missing)}", flush=True)
        return {}
    print(f"{name} ...", flush=True)
    return TRACE_PARTS[name](directory)


def main() -> int:
    options = parse_arguments()
    made = again(options.only, options.traces) if options.only else reproduce(options.seeds, options.traces)
    write(made, options.out)
    print(f"written: {options.out.with_suffix('.md')}")
    if options.docs:
        PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), options.out), encoding="utf-8")
        print(f"renewed: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
