"""An engine beside training on one core; daemon, front and client are on another: what each costs the other.

Three arms take turns in a run: the engine alone (training is paused), alone once more, and beside training.  The second
says what a ratio of two equal things is here.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.figures import Figure, measured_once, median_figure
from benchmarks.jobs import environment
from carpool.core.stats import quantile
from carpool.facts.fact import Fact, Told, What
from carpool.facts.recorded import RecordedFacts
from carpool.protocol.api import SubmitRequest
from carpool.protocol.client import DaemonClient
from tools.demo.session import Session, serving

ROOT = Path(__file__).resolve().parents[1]
TRAINING = ROOT / "tests" / "workloads" / "steady.py"
JOBS_CORE, CLIENT_CORE = 0, 1
CACHE_MIB = 24
SHARES = (30, 60, 90)  # per cent of the time that the engine has a request
ANSWER = 240  # tokens of those requests: a quarter of a second
SEVEN = 7
SMALL_ROWS = 8  # of a batch: steps of a fraction of a millisecond
TIMEOUT_S = 120.0


@dataclass
class Arm:
    """What was measured of requests: seconds."""

    first: list[float] = field(default_factory=list)
    token: list[float] = field(default_factory=list)
    cpu_token: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class Rig:
    """A daemon with a front, and engines by name; the client is this process."""

    def __init__(self, home: Path, capacity_mib: int, engines: dict[str, int]) -> None:
        self._stack = contextlib.ExitStack()
        os.sched_setaffinity(0, {CLIENT_CORE % os.cpu_count()})  # type: ignore[operator]
        session = Session(home, [f"host:{capacity_mib}MiB"], "fair", {"max_lanes": 1}, env=environment())
        self.client: DaemonClient = self._stack.enter_context(session)
        self.url = self._stack.enter_context(serving(home, engines))
        for name in engines:
            self.ask(name, "warm up", Arm())
            self._pin(self.job(name))

    def close(self) -> None:
        self._stack.close()
        os.sched_setaffinity(0, range(os.cpu_count() or 1))

    def job(self, name: str) -> int:
        return max(job.id for job in self.client.jobs() if job.name == name)

    def train(self, stop: Path, *rows: int) -> int:
        argv = _training(stop.with_suffix(".out"), "busily", stop, *rows)
        job = self.client.submit(SubmitRequest(argv, str(TRAINING.parent), environment(), name="training"))
        while self.client.job(job).iterations < 5:
            time.sleep(0.05)
        self._pin(job)
        return job

    def _pin(self, job: int) -> None:
        """A job inherits the daemon's core; the jobs' core stands for a device, on which no daemon computes."""
        for thread in Path(f"/proc/{self.client.job(job).pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {JOBS_CORE})

    def ask(self, name: str, prompt: str, arm: Arm, **more: int) -> None:
        body = json.dumps({"model": name, "prompt": prompt, "stream": True, **more}).encode()
        asked = urllib.request.Request(f"{self.url}/v1/completions", body, {"Content-Type": "application/json"})
        begin = time.perf_counter()
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            text = answer.readline()
            first = time.perf_counter()
            text += answer.read()
        end, tokens = time.perf_counter(), text.count(b"data: ")
        arm.first.append(first - begin)
        arm.token.append((end - first) / (tokens - 1))
        arm.texts.append(text.decode())


def run(quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="cp-", dir="/dev/shm") as directory:
        return [
            *_beside(Path(directory) / "a", 2 if quick else 6),
            *_switching(Path(directory) / "b", 4 if quick else 12),
            *_seven(Path(directory) / "c", 2 if quick else 4),
            *_different(Path(directory) / "d", *((50, 2000) if quick else (1000, 100_000))),
        ]


def _training(out: Path, *arguments: object) -> list[str]:
    return [sys.executable, str(TRAINING), str(out), *map(str, arguments)]


def _different(directory: Path, texts: int, steps: int) -> Iterator[Figure]:
    """Texts and training steps, each as alone: the same questions before training, and as many steps after it."""
    rig, stop = _rig(directory, 256, {"llm": CACHE_MIB}), directory / "stop"
    questions, pauses, alone, beside = [f"question {number}" for number in range(50)], random.Random(1), Arm(), Arm()
    try:
        for question in questions:
            rig.ask("llm", question, alone)
        training = rig.train(stop, SMALL_ROWS)
        while len(beside.texts) < texts or rig.client.job(training).iterations < steps:
            rig.ask("llm", questions[len(beside.texts) % len(questions)], beside)
            time.sleep(pauses.uniform(0, 8 * statistics.median(beside.first)))
        stop.touch()
        rig.client.wait(training, TIMEOUT_S)
    finally:
        stop.touch()
        rig.close()
    found = json.loads(stop.with_suffix(".out").read_text())
    again = _training(directory / "again", "count", found["count"], SMALL_ROWS)
    subprocess.run(again, env=environment(), check=True)
    same = json.loads((directory / "again").read_text()) == found
    wrong = sum(text != alone.texts[number % len(questions)] for number, text in enumerate(beside.texts))
    yield measured_once("engines", "texts that differ", "texts", wrong, target=0, texts=len(beside.texts))
    yield measured_once(
        "engines", "training steps that differ", "steps", 0 if same else found["count"], target=0, steps=found["count"]
    )


def _beside(directory: Path, rounds: int) -> list[Figure]:
    rig, stop = _rig(directory, 256, {"llm": CACHE_MIB}), directory / "stop"
    try:
        training, engine = rig.train(stop), rig.client.job(rig.job("llm"))
        assert engine.pid is not None
        arms = {name: [Arm() for _ in range(rounds)] for name in ("alone", "again", "beside")}
        for number in range(rounds):
            for name in random.Random(number).sample(sorted(arms), 3):
                _one(rig, training, engine.pid, arms[name][number], paused=name != "beside")
        figures = [*_ratios(arms), _taking(rig, engine.id, training), _abandoned(rig, training, arms, 10)]
        figures += [_share(rig, training, share / 100, rounds) for share in SHARES]
    finally:
        stop.touch()
        rig.close()
    return figures


def _rig(directory: Path, capacity_mib: int, engines: dict[str, int]) -> Rig:
    directory.mkdir()
    return Rig(directory / "home", capacity_mib, engines)


def _one(rig: Rig, training: int, engine: int, arm: Arm, *, paused: bool) -> None:
    """Ask ten questions, at random intervals."""
    pauses = random.Random(len(arm.first))
    if paused:
        rig.client.pause(training)
    for number in range(10):
        time.sleep(pauses.uniform(0.02, 0.1))
        before = _cpu_s(engine)
        rig.ask("llm", f"question {number}", arm)
        arm.cpu_token.append((_cpu_s(engine) - before) / arm.texts[-1].count("data: "))
    if paused:
        rig.client.resume(training)


def _cpu_s(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _ratios(arms: dict[str, list[Arm]]) -> Iterator[Figure]:
    for title, what, target in (
        ("time to first token", "first", 1.05),
        ("time per token", "token", 1.02),
        ("processor time per token", "cpu_token", 1.02),
    ):
        found = {name: [statistics.median(getattr(arm, what)) for arm in rounds] for name, rounds in arms.items()}
        same = [one / other for one, other in zip(found["again"], found["alone"], strict=True)]
        detail = {"alone_s": found["alone"], "beside_s": found["beside"], "alone_against_alone": same}
        ratios = [one / other for one, other in zip(found["beside"], found["alone"], strict=True)]
        yield median_figure(
            "engines", f"{title}, beside training / alone", "ratio", ratios, target=target, detail=detail
        )
        yield median_figure("engines", f"{title}, alone / alone", "ratio", same)


def _taking(rig: Rig, engine: int, training: int) -> Figure:
    """From the report that there is a request to the engine's turn, where training has the turn."""
    asked_us, holder, times, facts = None, None, [], RecordedFacts()
    for event in rig.client.events():
        if event.kind == "ServiceBusy" and event.job == engine:
            asked_us = event.now_us if event.data["busy"] and holder == training else None
        told = facts.read(event)
        holder = next((job for job in (engine, training) if _begins_turn(told, job)), holder)
        if asked_us is not None and holder == engine:
            times.append(event.now_us - asked_us)
            asked_us = None
    found = [quantile(times, share) / 1000 for share in (500_000, 990_000)]
    return Figure(
        "engines",
        "time to take the turn, median (high: 99 %)",
        found[0],
        "ms",
        min(times) / 1000,
        found[1],
        len(times),
        2.0,
    )


def _begins_turn(told: Sequence[Told], job: int) -> bool:
    return any(isinstance(each, Fact) and (each.what, each.job, each.end_us) == (What.TURN, job, None) for each in told)


def _abandoned(rig: Rig, training: int, arms: dict[str, list[Arm]], tries: int) -> Figure:
    """From a client that leaves to the next turn of training."""
    times = []
    for _ in range(tries):
        seq = max(event.seq for event in rig.client.events())
        body = json.dumps({"model": "llm", "prompt": "a question", "stream": True}).encode()
        asked = urllib.request.Request(f"{rig.url}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            answer.readline()
        left_us = time.time_ns() // 1000
        facts, stream = RecordedFacts(), rig.client.events(follow=True, since=seq)
        turn = next(event for event in stream if _begins_turn(facts.read(event), training) and event.time_us > left_us)
        times.append((turn.time_us - left_us) / 1000)
        time.sleep(0.2)
    step = statistics.median(value for arm in arms["beside"] for value in arm.token) * 1000
    return median_figure(
        "engines", "a client leaves: training computes after", "ms", times, detail={"decode_step_ms": step}
    )


def _share(rig: Rig, training: int, share: float, rounds: int) -> Figure:
    """Iterations of training beside an engine that is busy for a share of the time, against those of the rest."""
    values, seen, lost = [], [], []
    for _ in range(rounds):
        alone = _rate(rig, training, 3.0)
        arm, busy = Arm(), 0.0
        begin, done = _counted(rig, training)
        while (passed := time.perf_counter() - begin) < 6.0:
            if busy < share * passed:
                before = time.perf_counter()
                rig.ask("llm", "a question", arm, max_tokens=ANSWER)
                busy += time.perf_counter() - before
            else:
                time.sleep(0.002)
        end, count = _counted(rig, training)
        computed, idle = (count - done) / ((alone + _rate(rig, training, 3.0)) / 2), end - begin - busy
        values.append(computed / idle)
        seen.append(busy / (end - begin))
        lost.append((idle - computed) / len(arm.first) * 1000)
    target = 0.9 if share >= 0.9 else 0.95
    name = f"training beside an engine that is busy {share:.0%} of the time / the idle time"
    detail = {"busy": seen, "lost_per_request_ms": lost}
    return median_figure("engines", name, "ratio", values, target=target, at_least=True, detail=detail)


def _rate(rig: Rig, training: int, seconds: float) -> float:
    begin, done = _counted(rig, training)
    time.sleep(seconds)
    end, count = _counted(rig, training)
    return (count - done) / (end - begin)


def _counted(rig: Rig, training: int) -> tuple[float, int]:
    """Return a time, and the iterations until then: the daemon counts them a few times per second."""
    before = rig.client.job(training).iterations
    while (count := rig.client.job(training).iterations) == before:
        time.sleep(0.005)
    return time.perf_counter(), count


def _switching(directory: Path, tries: int) -> Iterator[Figure]:
    """Two engines that do not fit together: the first token after a switch, against the copies that it needs."""
    mib = 96
    rig = _rig(directory, 150, {"one": mib, "two": mib})
    try:
        near, far = Arm(), Arm()
        for _ in range(tries):
            for name in ("one", "two"):
                rig.ask(name, "a question", far)
                rig.ask(name, "a question", near)
        moved = rig.client.job(rig.job("one"))
    finally:
        rig.close()
    copy_s = 2 * moved.persistent_bytes / _copy_rate()
    switches = [one - statistics.median(near.first) for one in far.first[2:]]
    detail = {"copies_s": copy_s, "bytes": moved.persistent_bytes}
    ratios = [each / copy_s for each in switches]
    name = "a switch between two engines / its two copies"
    yield median_figure("engines", name, "ratio", ratios, target=1.1, detail=detail)
    yield median_figure("engines", "a switch between two engines", "s", switches)


def _copy_rate() -> float:
    """Bytes per second of a copy between warm pages, on the core of the jobs."""
    os.sched_setaffinity(0, {JOBS_CORE})
    source, target = np.ones(96 << 17), np.ones(96 << 17)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - begin)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return source.nbytes / statistics.median(times)


def _seven(directory: Path, rounds: int) -> Iterator[Figure]:
    """Seven engines on a device that holds two."""
    names = [f"e{number}" for number in range(SEVEN)]
    rig = _rig(directory, 2 * (CACHE_MIB + 8), dict.fromkeys(names, CACHE_MIB))
    try:
        arms = {name: Arm() for name in names}
        for _ in range(rounds):
            for name in names:
                rig.ask(name, "a question", arms[name])
    finally:
        rig.close()
    right = sum(set(arm.texts) == {arms[names[0]].texts[0]} for arm in arms.values())
    yield median_figure(
        "engines",
        "engines on a device that holds two, which all answer right",
        "engines",
        [right],
        target=7,
        at_least=True,
    )
