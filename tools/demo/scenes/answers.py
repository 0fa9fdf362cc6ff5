"""A model answers while training goes on: as an ordinary job that waits for its turn, and by `carpool serve`."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from carpool.protocol.api import EventInfo
from carpool.protocol.client import DaemonClient
from carpool.protocol.models import ModelRequest
from carpool.serve.client import Client as Endpoint
from tools.demo.jobs import ROOT, environment, with_the_demo
from tools.demo.picture import Band
from tools.demo.programs.questions import PAUSE_S, QUESTIONS, WIDTH
from tools.demo.running import JobFailed, check, follow, time_limit
from tools.demo.scene import Scene
from tools.demo.session import Session
from tools.demo.submitting import CAPACITY, ONE_LANE, band, example, program, until_computing

TITLE = "A model answers while training goes on"
WHY = "A request pauses training in the middle of an iteration, only for as long as the model computes."
TRAINING = 10_000  # iterations: more than there is time for


def run(directory: Path) -> Scene:
    before, turns = _as_job(directory / "job")
    after, served = _served(directory / "served")
    figure = "median time of an answer, by turns -> by carpool serve"
    words = [f"{value * 1000:.0f} ms" for value in (before, after)]
    return Scene("answers", TITLE, figure, words[0], words[1], WHY, [turns, served], CAPACITY)


def _as_job(home: Path) -> tuple[float, Band]:
    with Session(home, [f"host:{CAPACITY}B"], "fair", ONE_LANE) as client, time_limit("the model as a job"):
        until_computing(client, [example(client, "gpt", TRAINING)])
        model = program(client, "answering", "model")
        found = band("by turns", follow(client, {model}), client)
        check(client.job(model), home)
        times = (home / "jobs" / str(model) / "log").read_text().split()
    return statistics.median(map(float, times)), found


def _served(home: Path) -> tuple[float, Band]:
    with Session(home, [f"host:{CAPACITY}B"], "fair") as client, time_limit("the served model"):
        network = ModelRequest("tools.demo.programs.model:network", sys.executable, str(ROOT), with_the_demo())
        client.add_model("model", network)
        with _front(home) as url:
            until_computing(client, [example(client, "gpt", TRAINING)])
            times = _ask(Endpoint(url))
        return statistics.median(times), band("by carpool serve", _so_far(client), client)


def _so_far(client: DaemonClient) -> list[EventInfo]:
    return list(client.events())


def _ask(endpoint: Endpoint) -> list[float]:
    """Seconds of each answer, the HTTP request included; the first one, which starts the worker, does not count."""
    row, times = np.ones((1, WIDTH), np.float32), []
    for _ in range(QUESTIONS + 1):
        time.sleep(PAUSE_S)
        begin = time.monotonic()
        endpoint.infer("model", row)
        times.append(time.monotonic() - begin)
    return times[1:]


@contextmanager
def _front(home: Path) -> Iterator[str]:
    """`carpool serve`, when the model is ready: its address.  Raises JobFailed."""
    command = [sys.executable, "-m", "carpool.cli", "serve", "--json", "--port", "0", "--home", str(home)]
    env = environment() | {"XDG_CACHE_HOME": str(home.parent)}
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as front:
        try:
            assert front.stdout is not None
            said = [json.loads(front.stdout.readline() or "{}") for _ in ("serving", "ready")]
            if [each.get("event") for each in said] != ["serving", "ready"]:
                raise JobFailed(f"carpool serve said {said}")
            yield said[0]["url"]
        finally:
            front.terminate()
            front.communicate()
