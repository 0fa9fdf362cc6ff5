"""Everything at once, for minutes: ``python -m tests.adversary.attack [--minutes 10] [--out DIR]``; needs root.

One user attacks a daemon of root: by jobs that speak the protocol themselves and keep their turns (`raw.py`), by the
API, the session socket and files (`attackers.py`), while the daemon is killed and started again every two minutes.
Beside that another user's job keeps a secret, and a job of root's trains.  What came of it is a dated result file.
Exit status 1: a bound was not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))

from daemon_harness import Daemon

from benchmarks.figures import Figure, measured_once
from benchmarks.machine import describe
from benchmarks.report import Report
from carpool.core.model import MIB
from tests.adversary.users import ATTACKER, User, python_of_users

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
MODES = ("api", "api", "session", "files", "reading")
JOBS = ("fuzz", "fuzz", "steal", "keep", "keep", "fill", "fill", "resize", "hog", "name_lane", "claim")
#: They have a user of their own: the attacker's requests and signals would end them before they have done anything.
OWNER_OF_JOBS = ATTACKER - 2
SEARCHED = re.compile(r"descriptors (\d+), secrets (\d+)")
LIFE_S = 120.0
#: A raw job is asked what it has found after so long at most: in half a minute few come to that on a busy machine.
LONGEST_JOB_S = 20.0
#: What a revoked turn may take: the time to the forced request, and the lease (decision 45); and what a restart takes.
LONGEST_PAUSE_S = 30.0
MOST_MEMORY, MOST_DISK = 512 * MIB, 512 * MIB  # of the daemon; of the home without logs of jobs


@dataclass
class Found:
    """What the minutes came to."""

    counts: Counter[str] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)
    disk: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    answers_s: list[float] = field(default_factory=list)
    secrets: int = 0
    searched: int = 0  # raw jobs that have looked into all of their descriptors
    least: int = 1  # as many must, or the search for secrets proves nothing
    lives: int = 1
    victim: str = ""
    alone: dict[str, Any] = field(default_factory=dict)
    beside: list[dict[str, Any]] = field(default_factory=list)

    def heard(self, said: dict[str, int]) -> None:
        """One attacker's last words."""
        self.secrets += said.pop("secrets", 0)
        self.counts.update(said)


class Attack:
    """One daemon, its victims, and the attacker's processes and jobs."""

    def __init__(self, daemon: Daemon, python: str, programs: Path, steps: int, seed: int) -> None:
        self.daemon, self.found = daemon, Found()
        self._victim = User(daemon, ATTACKER - 1, python, programs / "raw.py")
        self._attacker = User(daemon, OWNER_OF_JOBS, python, programs / "raw.py")
        self._command = [python, "-I", str(programs / "attackers.py")]
        self._steps, self._rng = steps, random.Random(seed)
        self._until = 0.0

    def run(self, seconds: float) -> Found:
        """Raises AssertionError where a victim or the daemon was harmed in a way that ends the run."""
        self.found.alone = self._trained()
        self.found.least = max(1, round((seconds - LONGEST_JOB_S) / 6))
        secret = self._victim.start("hold")
        self._until = time.monotonic() + seconds
        with ThreadPoolExecutor(len(JOBS) + len(MODES) + 2) as pool:
            others = [pool.submit(work) for work in (self._train, self._watch)]
            jobs = [pool.submit(self._raw_jobs, mode) for mode in JOBS]
            attackers = [pool.submit(self._attacks, mode) for mode in MODES]
            self._restarts()
            for each in (*others, *jobs, *attackers):
                each.result()
        self.found.victim = self._victim.end(secret)
        return self.found

    def _over(self) -> bool:
        return time.monotonic() > self._until

    def _attacks(self, mode: str) -> None:
        """Again, when the attacker is killed: who says to be the shim of a job may be killed with the job's group."""
        while not self._over():
            process = self._started(mode)
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, self._until - time.monotonic()))
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=60)[0]
            if process.returncode == 0:
                self.found.heard(json.loads(said))
            else:
                assert process.returncode in (-signal.SIGKILL, -signal.SIGTERM), (mode, process.returncode)
                self.found.counts[f"attackers that were killed: {mode}"] += 1

    def _started(self, mode: str) -> subprocess.Popen[str]:
        command = [*self._command, mode, str(self.daemon.home), str(self._rng.randrange(1 << 32))]
        return subprocess.Popen(
            command, user=ATTACKER, group=ATTACKER, extra_groups=[], cwd="/", stdout=subprocess.PIPE, text=True
        )

    def _trained(self) -> dict[str, Any]:
        job = self.daemon.submit(sys.executable, str(HERE / "training.py"), str(self._steps))
        said = self._ended(job)
        return json.loads(said.splitlines()[-1])  # type: ignore[no-any-return]

    def _ended(self, job: int) -> str:
        """The output of a job, over restarts of the daemon."""
        while True:
            try:
                info = self.daemon.get(f"/v1/jobs/{job}/wait?timeout_s=5")
                if info["phase"] == "ended":
                    assert info["outcome"] == "succeeded", info
                    return self.daemon.output(job)
            except OSError:
                time.sleep(0.1)  # between two daemons

    def _train(self) -> None:
        while not self._over():
            self.found.beside.append(self._trained())

    def _raw_jobs(self, mode: str) -> None:
        while not self._over():
            self.found.counts[f"raw jobs: {mode}"] += 1
            try:
                job = self._attacker.start(mode, *self._arguments(mode))
                time.sleep(self._rng.uniform(1, LONGEST_JOB_S))
                with suppress(IndexError):  # the job has been killed, and has said nothing in the end
                    self._attacker.end(job)
                self._searched(mode, self.daemon.output(job))
            except (AssertionError, OSError) as error:  # refused, killed, or between two daemons
                self.found.counts[f"raw jobs: {mode}, {type(error).__name__}"] += 1

    def _arguments(self, mode: str) -> tuple[object, ...]:
        match mode:
            case "hog":
                return self._rng.choice(("lane", "bank")), self._rng.randrange(1, 64)
            case "name_lane":
                return (self._rng.randrange(4),)
        return (self._rng.randrange(1 << 32),)

    def _searched(self, mode: str, said: str) -> None:
        """What the job's searches of all of its descriptors have found, and what else came of the job."""
        if not (searches := list(SEARCHED.finditer(said))):
            self.found.counts[f"raw jobs: {mode}, ended before the search"] += 1
            return
        self.found.counts[f"raw jobs: {mode}, searched"] += 1
        self.found.searched += 1
        self.found.counts["descriptors of raw jobs"] += max(int(search[1]) for search in searches)
        self.found.secrets += max(int(search[2]) for search in searches)
        if more := said[searches[-1].end() :].strip():
            self.found.counts[f"raw jobs: {mode}, {more}"] += 1

    def _restarts(self) -> None:
        while not self._over():
            life_ends = min(self._until, time.monotonic() + LIFE_S)
            while time.monotonic() < life_ends:
                assert self.daemon.process is not None and self.daemon.process.poll() is None, "the daemon died"
                time.sleep(0.5)
            if not self._over():
                self.daemon.kill()
                self.daemon.started()
                self.found.lives += 1

    def _watch(self) -> None:
        while not self._over():
            try:
                self._look()
            except OSError:
                self.found.counts["looks between two daemons"] += 1
            time.sleep(1)

    def _look(self) -> None:
        assert self.daemon.process is not None
        process = Path(f"/proc/{self.daemon.process.pid}")
        began = time.monotonic()
        self.daemon.get("/v1/version")
        self.found.answers_s.append(time.monotonic() - began)
        self.found.memory.append(int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        self.found.descriptors.append(len(list((process / "fd").iterdir())))
        self.found.disk.append(sum(_room(path) for path in self.daemon.home.iterdir()))


def _room(path: Path) -> int:
    """Bytes on the disk of a file of the daemon's; what lies in directories of jobs is their owners'."""
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0


def figures(found: Found, log: str) -> list[Figure]:
    """Bounds and what was measured beside them."""
    wrong = sum(run["weights"] != found.alone["weights"] for run in found.beside)
    pauses, lives = [run["longest_s"] for run in found.beside], found.lives

    def row(name: str, unit: str, value: float, target: float | None = None, **detail: Any) -> Figure:
        return measured_once("attack", name, unit, value, target=target, **detail)

    return [
        row("secrets of others found", "", found.secrets, 0, **dict(sorted(found.counts.items()))),
        replace(row("raw jobs that searched all their descriptors", "", found.searched, found.least), at_least=True),
        row("secrets of the victim damaged", "", float(found.victim != "intact"), 0, victim=found.victim),
        row("training runs with another result than alone", "", wrong, 0, runs_beside=len(found.beside)),
        row("longest pause of the training", "s", max(pauses), LONGEST_PAUSE_S, alone=found.alone["longest_s"]),
        row("tracebacks in the daemon's log", "", log.count("Traceback"), 0, lines=log.count("\n"), lives=lives),
        row("rows that could not be recorded", "", log.count("this cannot be recorded"), 0),
        row("memory of the daemon at the peak", "MiB", max(found.memory) / MIB, MOST_MEMORY / MIB),
        row("journal, log and the rest of the home", "MiB", max(found.disk) / MIB, MOST_DISK / MIB),
        row("descriptors of the daemon at the peak", "", max(found.descriptors)),
        row("slowest answer of the API to root", "s", max(found.answers_s), at=len(found.answers_s)),
    ]


@contextmanager
def attack(steps: int, seed: int) -> Iterator[Attack]:
    """A daemon that is attacked; it ends with all its jobs, and so do the attackers."""
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        Path(directory).chmod(0o711)
        programs = Path(directory) / "programs"
        programs.mkdir(mode=0o755)
        for name in ("raw.py", "attackers.py"):
            shutil.copy(HERE / name, programs)
        daemon = Daemon(Path(directory) / "home", "--device", "host:32MiB").started()
        try:
            yield Attack(daemon, python_of_users(), programs, steps, seed)
        finally:
            daemon.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.adversary.attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=20_000, help="of each training run")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for the result files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}", flush=True)
    machine = describe()
    with attack(options.steps, options.seed) as running:
        found = running.run(options.minutes * 60)
        log = running.daemon.log()
        (options.out / "attack.log").write_text(log)
        rows = figures(found, log)
    report = Report(f"{datetime.now(UTC):%Y-%m-%d}", machine, options.minutes < 10, rows)
    for row in rows:
        print(report.line(row), row.detail)
    print(report.write(options.out, "attack"))
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
