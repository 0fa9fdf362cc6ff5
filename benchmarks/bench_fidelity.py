"""How far predictions are from a live daemon, beside how far two live runs of the same jobs are from each other.

The jobs of the demo, long enough to last about a minute each, run live under every policy, and under `fair` on two
devices, once in each round.  `carpool calibrate` has measured the cores before.  In each round `carpool simulate
--from-journal` says what a policy would have made of the jobs of another one's run, and of its own, without being told
memory or lengths, as the daemon was not.  The floor: each live run beside those of the other rounds.
"""

from __future__ import annotations

import csv
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import permutations
from pathlib import Path

from benchmarks.figures import Figure, Skipped, measured_once, rounds_of
from benchmarks.five_policies.shared import run_shared
from carpool.core.model import MIB
from tools.demo.running import JobFailed

#: Policy and number of devices, by the name of the run.
RUNS_OF = {
    "fifo": ("fifo", 1),
    "srtf": ("srtf", 1),
    "fair": ("fair", 1),
    "pack": ("pack", 1),
    "fair, 2 devices": ("fair", 2),
}
#: Whose journal the prediction of another run is made from: `fifo`'s; for `fifo` that of `fair`.
OTHER = {name: "fair" if name == "fifo" else "fifo" for name in RUNS_OF}
CAPACITY_MIB = 192
ROUNDS = 5
SCALE = 2.5  # of the demo's lengths
HIGH = 0.95  # of all errors of a kind, the quantile that stands for the bad ones

Times = Mapping[int, float]  # completion time in seconds, by number of the job
Errors = Sequence[float]  # shares of the live time


def run(quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="cp-fidelity-") as name:
        directory = Path(name)
        calibration = _calibration(directory)
        rounds = [directory / str(number) for number in range(1 if quick else rounds_of(ROUNDS))]
        for each in rounds:
            _live_round(each, calibration, 0.3 if quick else SCALE)
        return [figure for name in RUNS_OF for figure in _figures(rounds, name)]


def _calibration(directory: Path) -> Path:
    home = directory / "calibrated"
    home.mkdir()
    print(_carpool("calibrate", "--home", str(home)), flush=True)
    return home / "calibration.json"


def _live_round(directory: Path, calibration: Path, scale: float) -> None:
    for name, (policy, devices) in RUNS_OF.items():
        place = directory / name
        place.mkdir(parents=True)
        try:
            run_shared(place, policy, CAPACITY_MIB * MIB, scale, lambda text: None, devices)
        except JobFailed as error:
            raise Skipped(str(error)) from error
        shutil.copy(calibration, place / "home")
        print(f"{place.name}: {statistics.mean(_live(place).values()):.1f} s", flush=True)


def _figures(rounds: Sequence[Path], name: str) -> Iterator[Figure]:
    """Yield the errors of the predictions of a run, job by job and in the mean, and the floor."""
    live = [_live(each / name) for each in rounds]
    kinds = {f"predicted from the journal of {OTHER[name]}": OTHER[name], "predicted from its own journal": name}
    for kind, source in kinds.items():
        found = [_predicted(each, source, name) for each in rounds]
        yield from _errors(f"{name}, {kind}", zip(found, live, strict=True))
    if len(live) > 1:
        yield from _errors(f"{name}, another live run", permutations(live, 2))


def _errors(name: str, pairs: Iterable[tuple[Times, Times]]) -> Iterator[Figure]:
    """Yield three figures about pairs of what is said and what was."""
    pairs = list(pairs)
    jobs = sorted(abs(said[job] - was[job]) / was[job] for said, was in pairs for job in was)
    ratios = [statistics.mean(said.values()) / statistics.mean(was.values()) for said, was in pairs]
    about = {"jobs": len(jobs), "live_mean_s": statistics.median(statistics.mean(was.values()) for _, was in pairs)}
    high = jobs[round(HIGH * (len(jobs) - 1))]
    means = {"mean_ratio": statistics.median(ratios), "mean_ratio_low": min(ratios), "mean_ratio_high": max(ratios)}
    yield measured_once("fidelity", f"{name}: error per job, median", "share", statistics.median(jobs), **about)
    yield measured_once("fidelity", f"{name}: error per job, p95", "share", high, **about)
    off = statistics.median(abs(ratio - 1) for ratio in ratios)
    yield measured_once("fidelity", f"{name}: error of the mean, median", "share", off, **means)


def _live(place: Path) -> Times:
    with closing(sqlite3.connect(place / "home" / "journal.sqlite")) as connection:
        rows = connection.execute("SELECT id, submitted_us, ended_us FROM jobs ORDER BY id").fetchall()
    return {job: (ended - submitted) / 1e6 for job, submitted, ended in rows}


def _predicted(directory: Path, source: str, name: str) -> Times:
    """Return what the simulator says of the run ``name`` by the journal of the run ``source`` of the same round."""
    policy, devices = RUNS_OF[name]
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / "jobs.csv"
        asked = ["--from-journal", str(directory / source / "home"), "--policy", policy, "--devices", str(devices)]
        asked += ["--device-memory", f"{CAPACITY_MIB}MiB", "--undeclared", "duration", "--undeclared", "memory"]
        _carpool("simulate", *asked, "--jobs-csv", str(table))
        with table.open() as file:
            return {int(row["job_id"]): float(row["jct_s"]) for row in csv.DictReader(file)}


def _carpool(*arguments: str) -> str:
    environment = {**os.environ, "COLUMNS": "120"}
    command = [sys.executable, "-m", "carpool.cli", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
