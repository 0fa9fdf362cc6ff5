"""A day of load within an hour: ``python -m tests.soak [--minutes 60] [--out DIR]``.

Six users submit jobs of every kind at a steady pace, so that equally many are kept at any time; what is kept for hours
and days is kept for a twenty-fourth of that.  After a quarter of the time nothing may grow any more, all outcomes must
be right, and every training must come to the same weights.  What came of it is a dated result file.  Exit status 1:
something grew or was wrong.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, measured_once
from benchmarks.machine import describe
from benchmarks.report import Report
from tests.daemon.daemon_harness import Daemon
from tests.daemon.forks import SOURCE
from tests.live import python_path
from tests.soak.load import TRAINING, Load, trained
from tests.soak.samples import Sample, growths, look

PROGRAM = Path(__file__).with_name("fast_daemon.py")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
USERS = 6
PACE_S = 1.5  # from the beginning of a piece of work of one user to that of the next, at least
EVERY_S = 2.0
SHOWN = 30  # every so many samples one is printed
LIMITS = 'keep_jobs = 500\nkeep_for = "1d"\n'


class FastDaemon(Daemon):
    """A daemon whose day lasts an hour."""

    def start(self) -> dict[str, Any]:
        """Raises AssertionError."""
        ready, write = os.pipe()
        command = [sys.executable, str(PROGRAM), "--home", str(self.home), *self.arguments, "--ready-fd", str(write)]
        environment = os.environ | {"PYTHONPATH": python_path(SOURCE)}
        self.process = subprocess.Popen(command, pass_fds=(write,), env=environment)  # type: ignore[assignment]
        os.close(write)
        with open(ready) as pipe:
            assert '"ok":true' in (line := pipe.readline()), line
        return {"ok": True}


@dataclass
class Found:
    """What a run came to."""

    samples: list[Sample] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@contextmanager
def daemon() -> Iterator[Daemon]:
    """Too small for what the jobs want together."""
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        home = Path(directory) / "home"
        home.mkdir(mode=0o700)
        (home / "limits.toml").write_text(LIMITS)
        made = FastDaemon(home, "--device", "host:24MiB")
        made.start()
        try:
            yield made
        finally:
            made.stop()


def run(made: Daemon, seconds: float, seed: int) -> Found:
    """Work for so long, and look at the daemon meanwhile."""
    job = made.submit(sys.executable, str(TRAINING), "300")
    made.get(f"/v1/jobs/{job}/wait?timeout_s=60")
    alone, found = trained(made.output(job)), Found()
    users = [Load(made, alone, seed + number) for number in range(USERS)]
    over = threading.Event()
    with ThreadPoolExecutor(USERS) as pool:
        work = [pool.submit(_until, user, over) for user in users]
        try:
            found.samples = list(_samples(made, seconds))
        finally:
            over.set()
        for each in work:
            each.result()
    for user in users:
        found.done.update(user.done)
        found.wrong += user.wrong
    return found


def _samples(made: Daemon, seconds: float) -> Iterator[Sample]:
    began, number = time.monotonic(), itertools.count()
    while (passed := time.monotonic() - began) < seconds:
        sample = look(made, passed)
        if next(number) % SHOWN == 0:
            print(sample, flush=True)
        yield sample
        time.sleep(EVERY_S)


def _until(user: Load, over: threading.Event) -> None:
    while not over.is_set():
        began = time.monotonic()
        user.step()
        over.wait(PACE_S - (time.monotonic() - began))


def figures(found: Found, log: str) -> list[Figure]:
    """Bounds and what was measured beside them."""
    later = found.samples[len(found.samples) // 4 :]

    def row(name: str, unit: str, value: float, target: float, **detail: Any) -> Figure:
        return measured_once("soak", name, unit, value, target=target, **detail)

    wrong = row("outcomes that were wrong", "", len(found.wrong), 0, **dict(sorted(found.done.items())))
    traced = row("tracebacks in the daemon's log", "", log.count("Traceback"), 0, lines=log.count("\n"))
    grown = [
        row(f"growth of {each.quantity}", "1/h", each.per_hour, each.allowed, mean=each.mean) for each in growths(later)
    ]
    return [wrong, traced, *grown]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for the result files")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    machine = describe()
    with daemon() as made:
        found = run(made, options.minutes * 60, options.seed)
        rows = figures(found, made.log())
    report = Report(f"{datetime.now(UTC):%Y-%m-%d}", machine, options.minutes < 60, rows)
    print("\n".join([*map(report.line, rows), *found.wrong]))
    print(report.write(options.out, "soak"))
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
