"""``python -m benchmarks.five_policies``: jobs one by one, then together under each policy; compare, print, draw."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.five_policies.alone import run_alone
from benchmarks.five_policies.report import completion_table, memory_table, peaks_together, table
from benchmarks.five_policies.results import Round
from benchmarks.five_policies.shared import run_shared
from benchmarks.five_policies.weights import differences
from carpool.protocol.client import ClientError
from carpool.protocol.units import parse_size
from tools.demo.jobs import JOBS, DemoJob
from tools.demo.picture import Band, draw
from tools.demo.running import JobFailed
from tools.demo.session import DaemonFailed

POLICIES = ("fifo", "pack", "srtf", "fair")
DEVICE = "192MiB"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.five_policies", description=__doc__)
    parser.add_argument("--device", default=DEVICE, type=parse_size, help="device size (default: %(default)s)")
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma-separated (default: %(default)s)")
    parser.add_argument("--jobs", default=[*JOBS], type=chosen_jobs, help="comma-separated (default: all five)")
    parser.add_argument("--scale", default=1.0, type=float, help="multiplies every job's iterations")
    parser.add_argument("--out", default=Path("demo-out"), type=Path, help="directory for the picture")
    return parser.parse_args()


def chosen_jobs(names: str) -> list[DemoJob]:
    """In the order of the benchmark."""
    known = {job.name: job for job in JOBS}
    if unknown := set(names.split(",")) - known.keys():
        raise argparse.ArgumentTypeError(f"there is no job {', '.join(unknown)}; choose from {', '.join(known)}")
    return [job for name, job in known.items() if name in names.split(",")]


def run_rounds(options: argparse.Namespace, directory: Path) -> list[Round]:
    say("one by one, without Carpool ...")
    rounds = [run_alone(directory / "alone", options.scale, options.jobs)]
    for policy in options.policies.split(","):
        say(f"together, policy {policy} ...")
        more = {"scale": options.scale, "say": say, "jobs": options.jobs}
        rounds.append(run_shared(directory / policy, policy, options.device, **more))
    return rounds


def changed_weights(rounds: list[Round]) -> list[str]:
    """One line per job and round whose final weights differ from those of its run alone."""
    alone = {job.name: job.weights for job in rounds[0].jobs}
    found = []
    for result in rounds[1:]:
        for job in result.jobs:
            names = differences(alone[job.name], job.weights)
            if names:
                found.append(f"{job.name} under {result.name}: {len(names)} tensors differ, first {names[0]}")
    return found


def write_picture(rounds: list[Round], options: argparse.Namespace) -> Path:
    bands = [Band(result.name, result.timeline, result.names) for result in rounds if result.timeline is not None]
    options.out.mkdir(parents=True, exist_ok=True)
    path: Path = options.out / "timeline.svg"
    path.write_text(draw(bands, options.device, peaks_together(rounds)), encoding="utf-8")
    return path


def report(rounds: list[Round], options: argparse.Namespace, seconds: float) -> int:
    text = "\n\n".join([table(rounds), completion_table(rounds), memory_table(rounds, options.device)])
    print(f"\n{text}\n")
    picture = write_picture(rounds, options)
    (options.out / "report.txt").write_text(text + "\n", encoding="utf-8")
    broken = changed_weights(rounds)
    if broken:
        print("FAILED: weights differ from the run alone\n  " + "\n  ".join(broken))
        return 1
    compared = sum(len(result.jobs) for result in rounds[1:])
    print(f"Final weights of all {compared} shared runs are bit-identical to the runs alone.")
    print(f"Timeline: {picture} ({seconds:.0f} s in all)")
    return 0


def main() -> int:
    options = parse_arguments()
    directory = Path(tempfile.mkdtemp(prefix="carpool-demo-"))
    begin = time.monotonic()
    try:
        status = report(run_rounds(options, directory), options, time.monotonic() - begin)
    except (JobFailed, DaemonFailed, ClientError, TimeoutError) as error:
        say(f"FAILED: {error}\nEverything is left in {directory} for a look.")
        return 1
    if status == 0:
        shutil.rmtree(directory, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
