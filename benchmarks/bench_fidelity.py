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
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from pathlib import Path

from benchmarks.figures import Figure, measured_once, rounds_of
from benchmarks.five_policies.results import Round
from benchmarks.five_policies.shared import run_shared
from carpool.core.model import MIB
from carpool.core.units import SECOND_US
from carpool.protocol.paths import Home
from carpool.sim.results.comparison import ComparedJob, Comparison

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

Times = Sequence[float]  # completion times in seconds, in the order of submission
LiveRound = dict[str, Times]  # by the name of the run


def run(quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="cp-fidelity-") as name:
        directory = Path(name)
        calibration = _calibration(directory / "calibrated")
        places = [directory / str(number) for number in range(1 if quick else rounds_of(ROUNDS))]
        rounds = [_live_round(place, calibration, 0.3 if quick else SCALE) for place in places]
        return [figure for name in RUNS_OF for figure in _figures(name, places, rounds)]


def _calibration(home: Path) -> Path:
    home.mkdir()
    print(_carpool("calibrate", "--home", str(home)), flush=True)
    return Home(home).calibration


def _live_round(directory: Path, calibration: Path, scale: float) -> LiveRound:
    found: LiveRound = {}
    for name, (policy, devices) in RUNS_OF.items():
        place = directory / name
        place.mkdir(parents=True)
        ran = run_shared(place, policy, CAPACITY_MIB * MIB, scale, lambda text: None, devices)
        shutil.copy(calibration, place / "home")
        print(f"{name}: {ran.mean_jct_s:.1f} s", flush=True)
        found[name] = _times(ran)
    return found


def _times(ran: Round) -> Times:
    return [job.completion_s for job in ran.jobs]


def _figures(name: str, places: Sequence[Path], rounds: Sequence[LiveRound]) -> Iterator[Figure]:
    """Yield the errors of the predictions of a run, job by job and in the mean, and the floor."""
    live = [each[name] for each in rounds]
    kinds = {f"predicted from the journal of {OTHER[name]}": OTHER[name], "predicted from its own journal": name}
    for kind, source in kinds.items():
        found = [_predicted(place / source / "home", name) for place in places]
        yield from _errors(f"{name}, {kind}", zip(found, live, strict=True))
    if len(live) > 1:
        yield from _errors(f"{name}, another live run", permutations(live, 2))


def _errors(name: str, pairs: Iterable[tuple[Times, Times]]) -> Iterator[Figure]:
    """Yield three figures about pairs of what is said and what was."""
    compared = [_compared(said, was) for said, was in pairs]
    jobs = Comparison([job for each in compared for job in each.jobs])
    ratios = [each.predicted_mean_s / each.real_mean_s for each in compared]
    about = {"jobs": len(jobs.jobs), "live_mean_s": statistics.median(each.real_mean_s for each in compared)}
    means = {"mean_ratio": statistics.median(ratios), "mean_ratio_low": min(ratios), "mean_ratio_high": max(ratios)}
    yield measured_once("fidelity", f"{name}: error per job, median", "share", jobs.error(50), **about)
    yield measured_once("fidelity", f"{name}: error per job, p95", "share", jobs.error(95), **about)
    off = statistics.median(each.mean_error for each in compared)
    yield measured_once("fidelity", f"{name}: error of the mean, median", "share", off, **means)


def _compared(said: Times, was: Times) -> Comparison:
    pairs = ((round(time * SECOND_US) for time in pair) for pair in zip(was, said, strict=True))
    return Comparison([ComparedJob(str(number), "", *pair) for number, pair in enumerate(pairs, 1)])


def _predicted(journal: Path, name: str) -> Times:
    """Return what the simulator says of the run ``name`` by a journal of the same round."""
    policy, devices = RUNS_OF[name]
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / "jobs.csv"
        asked = ["--from-journal", str(journal), "--policy", policy, "--devices", str(devices)]
        asked += ["--device-memory", f"{CAPACITY_MIB}MiB", "--undeclared", "duration", "--undeclared", "memory"]
        _carpool("simulate", *asked, "--jobs-csv", str(table))
        with table.open() as file:
            rows = sorted(csv.DictReader(file), key=lambda row: int(row["job_id"]))
        return [float(row["jct_s"]) for row in rows]


def _carpool(*arguments: str) -> str:
    environment = {**os.environ, "COLUMNS": "120"}
    command = [sys.executable, "-m", "carpool.cli", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
