"""Everything at once, for minutes: ``python -m tests.adversary.attack [--minutes 10] [--out DIR]``; needs root.

Users attack a daemon of root: by jobs that speak the protocol themselves, keep their turns, flood their channels and
stop their shims (`raw.py`), by the API, the session socket and files (`attackers.py`), while the daemon is killed and
started again every two minutes.  Services are allowed for everyone, as a service's turn is the one that makes the
training of other users pause.  Beside that another user's job keeps a secret, one more user asks and submits, and a job
of root's trains.  What came of it is a dated result file.  Exit status 1: a bound was not kept, or a kind of attack did
less than it is there for.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from benchmarks.figures import Figure, measured_once
from benchmarks.machine import describe
from benchmarks.report import Report
from carpool.core.model import MIB, Settings
from carpool.daemon.sigstop.watchdog import LEASE_S
from tests.adversary.users import ATTACKER, User, python_of_users
from tests.daemon.daemon_harness import Daemon
from tests.homes import home_directory

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
MODES = ("api", "api", "session", "files", "reading", "polling", "user")
#: Modes of `raw.py`.
JOBS = (
    *("fuzz", "fuzz_near", "fuzz_whole", "steal", "keep", "keep_service", "livelock", "growflood"),
    *("fill", "fill", "resize", "hog", "name_lane", "claim", "alone", "ask_again", "reseat", "stop_shim"),
)
#: They have users of their own: the attacker's requests and signals would end them before they have done anything, a
#: job that takes too much memory ends all jobs of its user, and a user's seats are writable for that user's jobs.
OWNER_OF_JOBS, KEEPER, FUZZER = ATTACKER - 2, ATTACKER - 3, ATTACKER - 4
OWNERS = dict.fromkeys(("keep", "livelock"), KEEPER) | dict.fromkeys(("fuzz_near", "fuzz_whole"), FUZZER)
OWNERS |= {"keep_service": ATTACKER - 5, "ask_again": ATTACKER - 6, "reseat": ATTACKER - 7, "stop_shim": ATTACKER - 8}
#: A user who attacks nobody, and the longest that the daemon may take to answer.
USER, LONGEST_ANSWER_S = ATTACKER - 9, 1.0
#: Attackers from outside with a uid of their own: what one uid asks waits for what it has asked before.
UIDS = {"user": USER, "polling": ATTACKER - 10}
#: Of the daemon: so long after SIGTERM a job is killed.  One of the attacker's has ended this much later at most.
KILL_AFTER_S, LATEST_END_S = 3.0, 1.0
LIMITS = 'services = "everyone"\n'
SEARCHED = re.compile(r"descriptors (\d+), secrets (\d+)")
SENT = re.compile(r"^packets (\d+)\n", re.MULTILINE)
LONGEST_LIFE_S = 120.0  # of a daemon; the first has a quarter of the run at most, so that each run has a kill
#: A raw job that need not wait for a lease is asked what it has found after so long at most.
LONGEST_JOB_S = 20.0
#: Of the daemon.  Jobs that come to no iteration are never measured: four such jobs at a time keep later ones waiting.
SETTINGS = {"warm_limit": 1000, "kill_after_us": round(KILL_AFTER_S * 1e6)}
#: They live until the daemon ends them.
UNTIL_THE_LEASE = ("keep", "keep_service", "livelock")
#: In such a run a job of each kind that keeps its turn comes to the end of its lease, whatever else ends such jobs.
LONG_RUN_S = 240.0
FORCED_S = Settings().forced_after_us / 1e6
#: What a busy machine adds to a pause; ``--slack`` times it.
SLACK_S = 10.0
#: What each kind of attack does in a minute at least, on a busy machine with 2 cores: less, and it proves nothing.
LEAST_PER_MINUTE = {
    "api: answers": 200,
    "session: messages": 200,
    "session: descriptors sent": 1000,
    "session: session answers": 10,
    "files: traps laid": 20,
    "files: answers about traps": 20,
    "files: files of others tried": 10,
    "files: files of others refused": 10,
    "reading: files tried": 2000,
    "reading: descriptors asked for": 1000,
    "reading: refused": 2000,
    "polling: answers": 20,
    "user: answered 200": 10,
    "user: answered 201": 10,
    "raw jobs: stop_shim, ended by root": 1,
    "raw jobs: reseat, unread": 0.1,
}
#: Packets of each job that floods, in a minute of the run.
PACKETS_PER_MINUTE = dict.fromkeys(("fuzz", "fuzz_near", "fuzz_whole", "growflood", "ask_again"), 500)
PACKETS_PER_MINUTE |= {"livelock": 5}
MOST_MEMORY, MOST_DISK = 512 * MIB, 512 * MIB  # of the daemon; of the home without logs of jobs


@dataclass
class Found:
    """What the minutes came to."""

    counts: Counter[str] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)
    disk: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    answers_s: list[float] = field(default_factory=list)
    slow: list[tuple[float, float]] = field(default_factory=list)  # late answers to others: when, and how late
    ends: list[tuple[float, str]] = field(default_factory=list)  # of raw jobs, after root's word: seconds and kind
    secrets: int = 0
    searched: int = 0  # raw jobs that have looked into all of their descriptors
    seconds: float = 0.0  # that the attacks were to go on for
    window_s: float = 0.0  # the longest time that a revoked turn lasts
    slack: float = 1.0
    kills: list[float] = field(default_factory=list)  # of the daemon, by the monotonic clock
    victim: str = ""
    alone: dict[str, Any] = field(default_factory=dict)
    beside: list[dict[str, Any]] = field(default_factory=list)

    def heard(self, mode: str, said: dict[str, Any]) -> None:
        """One attacker's last words."""
        self.slow += said.pop("slow", [])
        self.secrets += said.pop("secrets", 0)
        self.counts.update({f"{mode}: {what}": number for what, number in said.items()})

    def least(self) -> Iterator[tuple[str, float]]:
        """What has to have been done, and how often."""
        minutes = self.seconds / self.slack / 60
        yield from ((what, number * minutes) for what, number in LEAST_PER_MINUTE.items())
        yield from ((f"raw jobs: {mode}, packets", number * minutes) for mode, number in PACKETS_PER_MINUTE.items())
        yield from ((f"raw jobs: {mode}, searched", 1) for mode in dict.fromkeys(JOBS) if mode != "reseat")
        yield from ((f"raw jobs: {mode}, lease", 1) for mode in self._leased())
        yield from ((f"raw jobs: {mode}, over a kill", 1) for mode in ("name_lane", "claim"))
        yield "raw jobs: hog, overuse", 1
        yield "kills of the daemon", 1

    def _leased(self) -> tuple[str, ...]:
        """Kinds of jobs of which one at least has to have come to the end of its lease: in a short run, of none.

        Within a minute most of them are cancelled, overuse memory, or live over a kill of the daemon, before it ends.
        """
        return ("keep", "keep_service") if self.seconds / self.slack >= LONG_RUN_S else ()

    def pauses(self) -> Iterator[tuple[float, bool]]:
        """Pauses of the training, and whether a kill of the daemon was in each, or just before."""
        for run in self.beside:
            yield from ((length, self.killed(began, length)) for began, length in run["pauses"])

    def slowest_s(self) -> float:
        """Of the answers to the user who attacks nobody, while one daemon was there."""
        return max((took for began, took in self.slow if not self.killed(began, took)), default=0.0)

    def killed(self, began: float, length: float) -> bool:
        """Whether a daemon was killed then, or just before."""
        return any(began - SLACK_S <= at <= began + length for at in self.kills)


class Attack:
    """One daemon, its victims, and the attacker's processes and jobs."""

    def __init__(self, daemon: Daemon, python: str, programs: Path, steps: int, seed: int) -> None:
        self.daemon, self.found = daemon, Found()
        self._victim = User(daemon, ATTACKER - 1, python, programs / "raw.py")
        self._attackers = {
            mode: User(daemon, OWNERS.get(mode, OWNER_OF_JOBS), python, programs / "raw.py") for mode in JOBS
        }
        self._secret = 0  # the victim's job
        self._command = [python, "-I", str(programs / "attackers.py")]
        self._steps, self._rng = steps, random.Random(seed)
        self._until = 0.0

    def run(self, seconds: float, forced_s: float = FORCED_S, slack: float = 1.0) -> Found:
        """``forced_s``: after so long a turn is asked back by force.  ``slack``: how much busier the machine is.

        Raises AssertionError where a victim or the daemon was harmed in a way that ends the run.
        """
        self.daemon.put("/v1/policy", {"settings": {"forced_after_us": round(forced_s * 1e6), **SETTINGS}})
        self.found.alone = self._trained()
        self.found.seconds, self.found.slack, self.found.window_s = seconds, slack, 2 * forced_s + LEASE_S
        self._secret = self._victim.start("hold")
        self._until = time.monotonic() + seconds
        with ThreadPoolExecutor(len(JOBS) + len(MODES) + 2) as pool:
            others = [pool.submit(work) for work in (self._train, self._watch)]
            jobs = [pool.submit(self._raw_jobs, mode) for mode in JOBS]
            attackers = [pool.submit(self._attacks, mode) for mode in MODES]
            self._restarts()
            for each in (*others, *jobs, *attackers):
                each.result()
        self.found.victim = over_restarts(lambda: self._victim.end(self._secret))
        return self.found

    def _over(self) -> bool:
        return time.monotonic() > self._until

    def _attacks(self, mode: str) -> None:
        """Again, when the attacker is killed: who says to be the shim of a job may be killed with the job's group."""
        while not self._over():
            with tempfile.TemporaryFile() as said:
                status = self._attacked(mode, said)
                said.seek(0)
                self.found.heard(mode, json.loads(said.readline() or b"{}"))
            if status != 0:
                assert status in (-signal.SIGKILL, -signal.SIGTERM), (mode, status)
                self.found.counts[f"attackers that were killed: {mode}"] += 1

    def _attacked(self, mode: str, said: IO[bytes]) -> int:
        """The exit status of an attacker, which has written what has come of the attack."""
        process = self._started(mode, said)
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, self._until - time.monotonic()))
        process.send_signal(signal.SIGTERM)
        return process.wait(60)

    def _started(self, mode: str, said: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [*self._command, mode, str(self.daemon.home), str(self._rng.randrange(1 << 32)), str(self._secret)]
        uid = UIDS.get(mode, ATTACKER)
        return subprocess.Popen(command, user=uid, group=uid, extra_groups=[], cwd="/", stdout=said)

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
                self._raw_job(mode)
            except (AssertionError, OSError) as error:  # refused, killed, or between two daemons
                self.found.counts[f"raw jobs: {mode}, {type(error).__name__}"] += 1
                time.sleep(0.5)
            if mode == "keep_service":
                self._rest()

    def _raw_job(self, mode: str) -> None:
        fields = {"service": 1} if mode == "keep_service" else {}
        kills = len(self.found.kills)
        job = self._attackers[mode].submit(mode, *self._arguments(mode), **fields)
        over_restarts(lambda: self.daemon.until_line(job, "ready"))
        self._let_live(mode, job)
        self._end(mode, job)
        self.found.counts[f"raw jobs: {mode}, over a kill"] += len(self.found.kills) > kills
        self._searched(mode, over_restarts(lambda: self.daemon.output(job)))
        if (reason := over_restarts(lambda: self.daemon.show(job))["reason"]) is not None:
            self.found.counts[f"raw jobs: {mode}, {reason['code']}"] += 1
            self.found.counts[f"raw jobs: any, {reason['code']}"] += 1

    def _end(self, mode: str, job: int) -> None:
        began = time.monotonic()
        with suppress(IndexError):  # the job has been killed, and has said nothing in the end
            over_restarts(lambda: self._attackers[mode].end(job))
        took = time.monotonic() - began
        if not self.found.killed(began, took):
            self.found.ends.append((took, mode))
            self.found.counts[f"raw jobs: {mode}, ended by root"] += 1

    def _let_live(self, mode: str, job: int) -> None:
        """Until its lease is over; other jobs have less."""
        if mode not in UNTIL_THE_LEASE:
            time.sleep(self._rng.uniform(1, LONGEST_JOB_S))
            return
        while not self._over():
            with suppress(OSError):
                if self.daemon.get(f"/v1/jobs/{job}/wait?timeout_s=1")["phase"] == "ended":
                    return

    def _rest(self) -> None:
        """Services come before all training: one after the other would leave the training nothing, as documented."""
        time.sleep(max(0.0, min(self.found.window_s, self._until - time.monotonic())))

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
        self.found.counts[f"raw jobs: {mode}, packets"] += max(
            (int(sent[1]) for sent in SENT.finditer(said)), default=0
        )
        if more := said[searches[-1].end() :].strip():
            self.found.counts[f"raw jobs: {mode}, {more}"] += 1

    def _restarts(self) -> None:
        life_s = min(LONGEST_LIFE_S, self.found.seconds / 4)
        while not self._over():
            life_ends = min(self._until, time.monotonic() + life_s)
            while time.monotonic() < life_ends:
                assert self.daemon.process is not None and self.daemon.process.poll() is None, "the daemon died"
                time.sleep(0.5)
            if not self._over():
                self.found.kills.append(time.monotonic())
                self.found.counts["kills of the daemon"] += 1
                self.daemon.kill()
                self.daemon.started()
                life_s = LONGEST_LIFE_S

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


def over_restarts(call: Callable[[], Any]) -> Any:
    """What the daemon says, or the next one.  Raises OSError where there is none for a minute."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except (OSError, HTTPException):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)  # between two daemons


def _room(path: Path) -> int:
    """Bytes on the disk of a file of the daemon's; what lies in directories of jobs is their owners'."""
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0


def figures(found: Found, log: str) -> list[Figure]:
    """Bounds and what was measured beside them."""
    wrong = sum(run["weights"] != found.alone["weights"] for run in found.beside)
    longest = {
        over: max((length for length, was in found.pauses() if was is over), default=0.0) for over in (False, True)
    }
    ends, most_end_s = sorted(found.ends), KILL_AFTER_S + LATEST_END_S * found.slack
    most_s, lives = found.window_s + SLACK_S * found.slack, len(found.kills) + 1

    def row(name: str, unit: str, value: float, target: float | None = None, **detail: Any) -> Figure:
        return measured_once("attack", name, unit, value, target=target, **detail)

    return [
        row("secrets of others found", "", found.secrets, 0, **dict(sorted(found.counts.items()))),
        row("raw jobs that searched all their descriptors", "", found.searched),
        row("secrets of the victim damaged", "", float(found.victim != "intact"), 0, victim=found.victim),
        row("training runs with another result than alone", "", wrong, 0, runs_beside=len(found.beside)),
        row("longest pause of the training", "s", longest[False], most_s, alone=found.alone["longest_s"]),
        row("the same, over a kill of the daemon", "s", longest[True], most_s + found.window_s),
        row("tracebacks in the daemon's log", "", log.count("Traceback"), 0, lines=log.count("\n"), lives=lives),
        row("rows that could not be recorded", "", log.count("this cannot be recorded"), 0),
        row("memory of the daemon at the peak", "MiB", max(found.memory) / MIB, MOST_MEMORY / MIB),
        row("journal, log and the rest of the home", "MiB", max(found.disk) / MIB, MOST_DISK / MIB),
        row("descriptors of the daemon at the peak", "", max(found.descriptors)),
        row("slowest answer of the API to root", "s", max(found.answers_s), at=len(found.answers_s)),
        row("slowest answer to another user", "s", found.slowest_s(), LONGEST_ANSWER_S * found.slack, slow=found.slow),
        row("slowest end of an attacker's job", "s", ends[-1][0], most_end_s, slowest=ends[-5:], ends=len(ends)),
        *(replace(row(what, "", found.counts[what], least), at_least=True) for what, least in found.least()),
    ]


@contextmanager
def attack(steps: int, seed: int) -> Iterator[Attack]:
    """A daemon that is attacked; it ends with all its jobs, and so do the attackers."""
    with home_directory() as directory:
        directory.chmod(0o711)
        programs = directory / "programs"
        programs.mkdir(mode=0o755)
        for name in ("raw.py", "attackers.py"):
            shutil.copy(HERE / name, programs)
        home = directory / "home"
        home.mkdir(mode=0o711)
        (home / "limits.toml").write_text(LIMITS)
        daemon = Daemon(home, "--device", "host:32MiB").started()
        try:
            yield Attack(daemon, python_of_users(), programs, steps, seed)
        finally:
            daemon.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.adversary.attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=20_000, help="of each training run")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--slack", type=float, default=1.0, help="how much busier the machine is than it should be")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for the result files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}", flush=True)
    machine = describe()
    with attack(options.steps, options.seed) as running:
        found = running.run(options.minutes * 60, slack=options.slack)
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
