"""``python -m tests.gpu [check|bench] [--out DIR] [NAME...]``: a table, and ``DIR/DATE-GPU.{json,md}``.

Exit status 1: at least one check failed; 2: there is no GPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from carpool.devices.base import DeviceError
from carpool.devices.cuda import driver
from tests.gpu import report, runner

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "gpu"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("check", "bench", "one"), default="check")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for the result files")
    parser.add_argument("names", nargs="*", help="only these")
    options = parser.parse_intermixed_args()
    known = runner.load()
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"unknown name {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if options.command == "one":
        print(runner.as_json(runner.run_here(known[options.names[0]])), flush=True)
        return 0
    try:
        driver.start()
    except DeviceError as error:
        print(f"error: {error}; nothing can be checked here", file=sys.stderr)
        return 2
    results = []
    measures = options.command == "bench"
    for name in options.names or [name for name, each in known.items() if each.measures == measures]:
        results.append(runner.run_apart(known[name]))
        print(report.line(results[-1]), flush=True)
    print(f"written: {report.write(results, options.out, options.command)}")
    return int(any(result.outcome == runner.FAILED for result in results))


if __name__ == "__main__":
    sys.exit(main())
