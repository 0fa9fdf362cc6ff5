"""Throughput of training beside a service, against the share of time in which the service does not compute.

Requests come at equal distances, so that computing them takes 10, 50 and 90 % of the time; one after the other, so at
high loads some come later.  What counts is the time that they did take, as the worker has it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figure, median_figure, rounds_of
from benchmarks.on_call import Listener, OnCall
from benchmarks.shares import rate
from benchmarks.through_serve import Asked, Served
from benchmarks.workloads.hosted import batch

#: Without a target: requests of some milliseconds, which show what each of them costs the training.
SMALL = "small"
#: And the device.
MODELS = {"inception_v3": "host:512MiB", SMALL: "host:128MiB"}
LOADS = (0.1, 0.5, 0.9)
TARGET = 0.9
WARM_UPS = 3


class Window(NamedTuple):
    """``per_s``: iterations; ``share``: of the time in which the service computed; ``answered_s``: of each request."""

    per_s: float
    share: float
    answered_s: list[float]


def run(quick: bool) -> list[Figure]:
    seconds, rounds = (3.0, 1) if quick else (10.0, rounds_of(3))
    return [figure for model in MODELS for figure in measure(model, rounds, seconds)]


def measure(model: str, rounds: int, seconds: float) -> list[Figure]:
    plain_per_s, idle_per_s = [], []
    beside: defaultdict[float, list[Window]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        listener = stack.enter_context(closing(Listener(Path(name))))
        plain = stack.enter_context(listener.plain())
        served = stack.enter_context(Served(Path(name), [model], MODELS[model]))
        job = stack.enter_context(listener.job(served.client))
        service = Service(served, model)
        for _ in range(rounds):
            plain_per_s.append(window(plain, service, 0, seconds).per_s)
            idle_per_s.append(window(job, service, 0, seconds).per_s)
            for load in LOADS:
                beside[load].append(window(job, service, load, seconds))
    ratios = [one / other for one, other in zip(idle_per_s, plain_per_s, strict=True)]
    detail = {"idle_per_s": statistics.median(idle_per_s), "plain_per_s": statistics.median(plain_per_s)}
    name = f"training beside {model} without requests / plain training"
    idle = median_figure("serving_load", name, "ratio", ratios, target=TARGET, at_least=True, detail=detail)
    return [idle, *(figure_of(model, load, windows, idle_per_s) for load, windows in beside.items())]


class Service:
    """``computing_s``: of a request, without others."""

    def __init__(self, served: Served, model: str) -> None:
        self._served = served
        self._model = model
        self._x = batch(model)
        self.computing_s = statistics.median(_computing_s(self.ask()) for _ in range(WARM_UPS))

    def ask(self) -> Asked:
        return self._served.ask(self._model, self._x)


def window(training: OnCall, service: Service, load: float, seconds: float) -> Window:
    """Train beside requests that take the share ``load`` of the time."""
    training.tell("train")
    begin = time.monotonic()
    asked = _requests(service, load, begin, begin + seconds)
    time.sleep(max(0.0, begin + seconds - time.monotonic()))
    end = time.monotonic()
    ends = training.tell("rest")["ends"]
    share = sum(map(_computing_s, asked)) / (end - begin)
    return Window(rate(ends, begin, end), share, [each.answered_s for each in asked])


def _requests(service: Service, load: float, begin: float, end: float) -> list[Asked]:
    """Until they would come after the end, but one at least."""
    asked: list[Asked] = []
    due = begin
    while load and (not asked or max(due, time.monotonic()) < end):
        time.sleep(max(0.0, due - time.monotonic()))
        asked.append(service.ask())
        due += service.computing_s / load
    return asked


def _computing_s(asked: Asked) -> float:
    return asked.computed_s - asked.called_s


def figure_of(model: str, load: float, windows: list[Window], idle_per_s: list[float]) -> Figure:
    """``idle_per_s``: iterations beside the same service without requests, in the same rounds."""
    values = [each.per_s / (base * (1 - each.share)) for each, base in zip(windows, idle_per_s, strict=True)]
    detail = {
        "per_s": statistics.median(each.per_s for each in windows),
        "idle_per_s": statistics.median(idle_per_s),
        "share_of_the_service": statistics.median(each.share for each in windows),
    }
    answered = [second for each in windows for second in each.answered_s]
    detail |= {"request_ms": 1000 * statistics.median(answered), "worst_request_ms": 1000 * max(answered)}
    name = f"training beside {model} at {load:.0%} load / idle share of that without requests"
    target = None if model == SMALL else TARGET
    return median_figure("serving_load", name, "ratio", values, target=target, at_least=True, detail=detail)
