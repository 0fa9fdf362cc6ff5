"""``python -m benchmarks.versus CHECKOUT [--rounds N] [--label LABEL] NAME...``: two versions side by side, in one run.

``CHECKOUT`` is the directory of another version, set up (`make setup`, and `make src/native/bench/build/...` where a
benchmark has a C program).  The versions take turns, each round begins with the other one, and each figure that both
have becomes a ratio: this version / that one, within the round; the median and range of the rounds are written to
``benchmarks/results/DATE-CPU-LABEL.{json,md}``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, median_figure
from benchmarks.machine import describe
from benchmarks.report import Report

HERE = Path(__file__).resolve().parents[1]
RESULTS = HERE / "benchmarks" / "results"
#: A figure's benchmark and name.
Key = tuple[str, str]
Values = Mapping[Key, float]


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versus", description=__doc__)
    parser.add_argument("checkout", type=Path, help="directory of the other version, set up")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each version (default: 5)")
    parser.add_argument("--label", default="versus", help="for the result file's name (default: versus)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for the result file")
    parser.add_argument("--quick", action="store_true", help="few repetitions: to see whether it works, not to quote")
    parser.add_argument("names", nargs="+", help="benchmarks that both versions have")
    options = parser.parse_args(arguments)
    if not interpreter(options.checkout).exists():
        parser.error(f"{options.checkout} is not set up: there is no {interpreter(options.checkout)}; run `make setup`")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def interpreter(checkout: Path) -> Path:
    return checkout / ".venv" / "bin" / "python"


def measured(checkout: Path, names: Sequence[str], quick: bool) -> dict[Key, float]:
    """The figures of one run of a version.  Raises SystemExit with its output if the run fails."""
    with tempfile.TemporaryDirectory() as out:
        command = [str(interpreter(checkout)), "-m", "benchmarks", "--out", out, *["--quick"] * quick, *names]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed in {checkout}:\n{done.stdout}{done.stderr}")
        (result,) = Path(out).glob("*.json")
        return values(json.loads(result.read_text())["figures"])


def values(figures: Iterable[Mapping[str, Any]]) -> dict[Key, float]:
    return {(figure["benchmark"], figure["name"]): figure["value"] for figure in figures}


def ratios(rounds: Sequence[tuple[Values, Values]]) -> list[Figure]:
    """One figure for each that both versions have in every round; what is zero in either has no ratio."""
    shared = [key for key in rounds[0][0] if all(this.get(key) and that.get(key) for this, that in rounds)]
    return [_ratio(key, [this[key] for this, _ in rounds], [that[key] for _, that in rounds]) for key in shared]


def _ratio(key: Key, this: Sequence[float], that: Sequence[float]) -> Figure:
    each = [new / old for new, old in zip(this, that, strict=True)]
    sides = {"this": statistics.median(this), "that": statistics.median(that)}
    return median_figure(key[0], f"this / that: {key[1]}", "ratio", each, detail=sides)


def run(options: argparse.Namespace) -> Iterator[tuple[Values, Values]]:
    """One round after the other."""
    for number in range(options.rounds):
        order = (HERE, options.checkout) if number % 2 == 0 else (options.checkout, HERE)
        found = {checkout: measured(checkout, options.names, options.quick) for checkout in order}
        print(f"round {number + 1} of {options.rounds}", flush=True)
        yield found[HERE], found[options.checkout]


def commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    options = parse_arguments()
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    versions: dict[str, str | int] = {"this": commit(HERE), "that": commit(options.checkout)}
    report, rounds = Report(today, describe() | versions, options.quick), []
    for one in run(options):
        rounds.append(one)
        report.figures = ratios(rounds)
        written = report.write(options.out, options.label)  # after each round: what is interrupted is not lost
    print("\n".join(map(report.line, report.figures)) + f"\nwritten: {written}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
