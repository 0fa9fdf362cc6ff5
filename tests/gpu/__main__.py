"""``python -m tests.gpu [contact|check|bench] [--out DIR] [NAME...]``: a table, and ``DIR/DATE-GPU.{json,md}``.

The files are written anew after each result.  Exit status 1: at least one check failed; 2: there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.gpu import apart, plans, report, runner
from tests.gpu.runner import GRACE_S, Result

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "gpu"
WHERE_S = 60.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    commands = ("contact", "check", "bench", "one", "where")
    parser.add_argument("command", nargs="?", choices=commands, default="check")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for the result files")
    parser.add_argument("--only-failed", action="store_true", help="what has not passed in the latest such run")
    parser.add_argument("--slack", type=float, default=1.0, help="everything may take this many times as long")
    parser.add_argument("--limit", type=float, default=plans.TIMEOUT_S, help="seconds, of `one`")
    parser.add_argument("names", nargs="*", help="only these")
    given = parser.parse_intermixed_args()
    known = runner.load()
    if unknown := set(given.names) - set(known):
        parser.error(f"unknown name {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return given


def main() -> int:
    given = options()
    if given.command == "one":
        print(runner.as_json(runner.run_here(runner.load()[given.names[0]], given.limit)), flush=True)
        return 0
    if given.command == "where":
        print(json.dumps(report.describe()), flush=True)
        return 0
    begin = time.monotonic()
    where = found_out(given.slack)
    if where["device"] == report.NO_DEVICE and given.command != "contact":
        print(f"error: {where['driver']}; nothing can be checked here", file=sys.stderr)
        return 2
    try:
        return run(given, where, begin)
    except FileNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def found_out(slack: float) -> dict[str, str]:
    """Where this is, by a process of its own: the driver may not come back."""
    ended = apart.run([sys.executable, "-m", "tests.gpu", "where"], WHERE_S * slack)
    if ended.status == 0:
        where: dict[str, str] = json.loads(ended.output.splitlines()[-1])
        return where
    how = "no answer in time" if ended.status is None else ended.errors.strip()[-500:]
    return {"device": report.NO_DEVICE, "driver": f"the driver was asked what is here: {how}"}


def run(given: argparse.Namespace, where: dict[str, str], begin: float) -> int:
    """``begin``: of everything, by the monotonic clock.  Raises FileNotFoundError without an earlier run."""
    steps = plans.plan(given.command, runner.load())
    written = report.Report(given.out, given.command, where, steps)
    if given.only_failed:
        written.take_over(report.latest(given.out, given.command))
    for name in given.names or steps:
        if name not in written.passed:
            written.add(one(steps.get(name, plans.Step(name)), given, begin))
            print(report.line(written.results[name]), flush=True)
    print(f"{written.summary()}\nwritten: {written.path}")
    return int(written.failed)


def one(step: plans.Step, given: argparse.Namespace, begin: float) -> Result:
    check = runner.load()[step.name]
    limit_s = step.limit_s * given.slack
    if given.command == "contact":
        left_s = begin + plans.CONTACT_S * given.slack - time.monotonic() - GRACE_S
        limit_s = min(limit_s, left_s)
        if limit_s < GRACE_S:
            return Result(check.name, check.title, runner.SKIPPED, "no time was left: run again with --only-failed")
    return runner.run_apart(check, limit_s)


if __name__ == "__main__":
    sys.exit(main())
