"""``python -m tools.gpu_check [lease|check|bench] [--out PLACE] [NAME...]``: a table, and files as results come.

``check`` and ``bench`` write ``PLACE/DATE-GPU.{json,md}``.  For ``lease`` PLACE is a folder, or the archive of one, and
is gone on with.  Exit status 1: at least one check failed; 2: there is no GPU, or PLACE cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tools.gpu_check import apart, plans, report, runner
from tools.gpu_check import lease as leases
from tools.gpu_check.runner import Result

ROOT = Path(__file__).resolve().parents[2]
RESULTS, LEASE = ROOT / "benchmarks" / "results" / "gpu", ROOT / "gpu-lease"
WHERE_S = 20.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check", description=__doc__)
    commands = ("lease", "check", "bench", "one", "here", "where")
    parser.add_argument("command", nargs="?", choices=commands, default="check")
    parser.add_argument("--out", type=Path, help="where results are; a lease is gone on with")
    parser.add_argument("--minutes", type=float, default=9.0, help="a lease is over by then")
    parser.add_argument("--slack", type=float, default=1.0, help="everything may take this many times as long")
    parser.add_argument("--limit", type=float, default=plans.TIMEOUT_S, help="seconds, of `one` and `here`")
    parser.add_argument("names", nargs="*", help="only these")
    given = parser.parse_intermixed_args()
    known = runner.load()
    if unknown := set(given.names) - set(known):
        parser.error(f"unknown name {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return given


def main() -> int:
    begin, given = time.monotonic(), options()
    if given.command == "here":
        print(runner.as_json(runner.run_here(runner.load()[given.names[0]], given.limit)), flush=True)
    elif given.command == "one":
        print(runner.as_json(supervised(given)), flush=True)
    elif given.command == "where":
        print(json.dumps(report.describe()), flush=True)
    elif given.command == "lease":
        return lease(given, begin + 60 * given.minutes)
    else:
        return run(given)
    return 0


def supervised(given: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory(prefix="evidence-") as directory:
        return runner.supervise(runner.load()[given.names[0]], given.limit, given.out or Path(directory))


def found_out(slack: float) -> dict[str, str]:
    """Where this is, by a process of its own: the driver may not come back."""
    ended = apart.run([sys.executable, "-m", "tools.gpu_check", "where"], WHERE_S * slack)
    if ended.status == 0:
        where: dict[str, str] = json.loads(ended.output.splitlines()[-1])
        return where
    how = "no answer in time" if ended.status is None else ended.errors.strip()[-500:]
    return {"device": report.NO_DEVICE, "driver": f"the driver was asked what is here: {how}"}


def lease(given: argparse.Namespace, until: float) -> int:
    leases.undisturbed()
    try:
        folder = leases.Folder.named(given.out or LEASE)
        written = report.Report(folder.path / leases.RESULTS, "lease", found_out(given.slack), steps_of(given))
        written.take_over()
    except (OSError, ValueError, tarfile.TarError, report.ElsewhereError) as error:
        print(f"error: {error}: name another folder (LEASE=...)", file=sys.stderr)
        return 2
    leases.Lease(folder, written, runner.load(), runner.run_apart, until, given.slack).go_on()
    leases.say(f"{written.summary()}\nwritten: {written.path}, {folder.archive}")
    return int(written.failed)


def steps_of(given: argparse.Namespace) -> dict[str, plans.Step]:
    """With names only these, whatever they need."""
    steps = plans.plan(given.command, runner.load())
    chosen = {name: steps.get(name, plans.Step(name)) for name in given.names or steps}
    return {name: replace(step, needs=tuple(chosen.keys() & step.needs)) for name, step in chosen.items()}


def run(given: argparse.Namespace) -> int:
    where = found_out(given.slack)
    if where["device"] == report.NO_DEVICE:
        print(f"error: {where['driver']}; nothing can be checked here", file=sys.stderr)
        return 2
    steps = steps_of(given)
    written = report.Report(
        report.dated(given.out or RESULTS, given.command, where["device"]), given.command, where, steps
    )
    for step in steps.values():
        written.add(runner.run_apart(runner.load()[step.name], step.limit_s * given.slack))
        print(report.line(written.results[step.name]), flush=True)
    print(f"{written.summary()}\nwritten: {written.path}")
    return int(written.failed)


if __name__ == "__main__":
    sys.exit(main())
