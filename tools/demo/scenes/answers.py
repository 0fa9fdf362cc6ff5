"""A language model answers while training goes on: as an ordinary job that waits for its turn, and by `carpool serve`.

What both compute is compared with what they compute alone.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from carpool.protocol.client import DaemonClient
from tools.demo.jobs import ROOT, environment
from tools.demo.picture import Band
from tools.demo.running import TIMEOUT_S, JobFailed, check, follow, time_limit
from tools.demo.scene import Scene
from tools.demo.session import LLM, Session, serving
from tools.demo.submitting import CAPACITY, ONE_LANE, band, example, script, until_computing

TITLE = "A language model answers while training goes on"
CACHE_MIB = 24
TRAINING, ITERATIONS = "gpt", 24
QUESTIONS, PAUSE_S = 12, 0.3


@dataclass
class Asked:
    """Answers, and the seconds to the first token of each.  The first question does not count: it starts the engine."""

    texts: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def ask(self, url: str) -> None:
        for number in range(QUESTIONS + 1):
            time.sleep(PAUSE_S)
            begin = time.monotonic()
            with urllib.request.urlopen(_request(url, number), timeout=TIMEOUT_S) as answer:
                first = answer.readline()
                self.times.append(time.monotonic() - begin)
                self.texts.append((first + answer.read()).decode())

    @property
    def median(self) -> str:
        return f"{statistics.median(self.times[1:]) * 1000:.0f} ms"


def run(directory: Path) -> Scene:
    alone, turns, served = Asked(), Asked(), Asked()
    # PyTorch writes the name of a file into it.
    weights = {name: directory / f"weights-{name}" / "weights.pt" for name in ("alone", "turns", "served")}
    for path in weights.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    with time_limit("the model and the training alone"):
        _alone(alone, weights["alone"])
    bands = [_as_job(directory / "job", turns, weights["turns"]), _served(directory / "srv", served, weights["served"])]
    texts = sum(one == other for each in (turns, served) for one, other in zip(each.texts, alone.texts, strict=True))
    same = sum(weights[name].read_bytes() == weights["alone"].read_bytes() for name in ("turns", "served"))
    why = (
        "Training pauses while the engine has a request, and for no longer.  As alone: "
        f"{texts} of {2 * len(alone.texts)} texts, {same} of 2 trained models."
    )
    if texts < 2 * len(alone.texts) or same < 2:
        raise JobFailed(f"something was not computed as alone: {why}")
    figure = "median time to the first token, by turns -> by carpool serve"
    return Scene("answers", TITLE, figure, turns.median, served.median, why, bands, CAPACITY)


def _request(url: str, number: int) -> urllib.request.Request:
    body = json.dumps({"model": "llm", "prompt": f"question {number}", "stream": True}).encode()
    return urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _until_listening(url: str) -> None:
    """Wait for the engine.  The time limit of the scene ends a wait in vain."""
    while True:
        try:
            urllib.request.urlopen(url, timeout=TIMEOUT_S).close()
        except OSError:
            time.sleep(0.05)
        else:
            return


def _alone(asked: Asked, weights: Path) -> None:
    port = _free_port()
    with subprocess.Popen([sys.executable, str(LLM), port, str(CACHE_MIB)], env=environment()) as engine:
        try:
            _until_listening(f"http://127.0.0.1:{port}")
            asked.ask(f"http://127.0.0.1:{port}")
        finally:
            engine.terminate()
    path = ROOT / "docs" / "examples" / f"{TRAINING}.py"
    command = [sys.executable, str(path), "--iterations", str(ITERATIONS), "--save", str(weights)]
    subprocess.run(command, env=environment(), cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def _as_job(home: Path, asked: Asked, weights: Path) -> Band:
    port = _free_port()
    with Session(home, [f"host:{CAPACITY}B"], "fair", ONE_LANE) as client, time_limit("the engine as a job"):
        engine = script(client, LLM, "llm", port, str(CACHE_MIB))
        _until_listening(f"http://127.0.0.1:{port}")
        return _beside(client, home, weights, asked, f"http://127.0.0.1:{port}", "by turns", engine)


def _served(home: Path, asked: Asked, weights: Path) -> Band:
    with (
        Session(home, [f"host:{CAPACITY}B"], "fair") as client,
        time_limit("the engine"),
        serving(home, {"llm": CACHE_MIB}) as url,
    ):
        return _beside(client, home, weights, asked, url, "by carpool serve")


def _beside(
    client: DaemonClient, home: Path, weights: Path, asked: Asked, url: str, title: str, engine: int | None = None
) -> Band:
    """Ask while training goes on; what is drawn ends with the training."""
    training = example(client, TRAINING, ITERATIONS, save=weights)
    until_computing(client, [training])
    asked.ask(url)
    events = follow(client, {training})
    check(client.job(training), home)
    if engine is not None:
        client.cancel(engine)
    return band(title, events, client)
