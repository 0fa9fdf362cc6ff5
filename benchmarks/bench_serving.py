"""Latency of requests that preempt training, measured by a client of `carpool serve`; beside it what there is without.

Training is a small CNN in one job.  The device has room for the model beside it, but not for its twin as well, so a
request for one of them makes the other leave.  Without Carpool: *one process* trains, and computes a request between
two iterations, when it has copied the weights; *stop-and-start* ends the training and starts a process for the model;
*unmanaged* are two processes that share one core, which is as much as a turn of Carpool's gives.
"""

from __future__ import annotations

import mmap
import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from benchmarks.figures import Figure, median_figure, rounds_of
from benchmarks.on_call import Listener, OnCall, seconds
from benchmarks.through_serve import Asked, Served, room
from benchmarks.workloads.hosted import TWIN, batch
from carpool.core.model import MIB
from carpool.devices import memfd
from carpool.protocol.records import decode
from carpool.serve.plan.manifest import Profile
from carpool.serve.prepare.prepare import pipelined

MODELS = ("resnet152", "inception_v3", "bert_base")
TARGET = 1.15
START_TARGET_MS = 3.0
#: Training goes on for up to so long before it is preempted: some iterations.
BEFORE_S = 0.2
WARM_UPS = 2
CORE = 0
#: What Carpool's ways, and those without it, are compared with.
READY, PLAIN = "ready", "plain"

Taken = defaultdict[str, list[float]]


def run(quick: bool) -> list[Figure]:
    rounds = 1 if quick else rounds_of(5)
    return [figure for model in MODELS for figure in measure(model, rounds)]


def measure(model: str, rounds: int) -> list[Figure]:
    taken: Taken = defaultdict(list)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        listener = stack.enter_context(closing(Listener(Path(name))))
        served = stack.enter_context(Served(Path(name), [model, model + TWIN], room(model)))
        asking = Asking(served, model, stack.enter_context(listener.job(served.client)))
        without = Without(listener, model, stack, core=CORE)
        size = first_group_bytes(served.profiles / f"{model}.json")
        for _ in range(rounds):
            asking.round(taken)
            without.at_once(taken)
            without.started(taken)
            time_copies(size, taken)
    return figures_of(model, taken, size)


class Requests:
    """Requests for a model through Carpool, and for those that take the same."""

    def __init__(self, served: Served, model: str, training: OnCall) -> None:
        self._served = served
        self._training = training
        self._x = batch(model)
        self._chance = random.Random(0)

    def ask(self, model: str) -> Asked:
        return self._served.ask(model, self._x)

    def preempt(self, model: str) -> Asked:
        """Training, which rests before and afterwards, is under way."""
        self._training.tell("train")
        time.sleep(self._chance.uniform(0, BEFORE_S))
        asked = self.ask(model)
        self._training.tell("rest")
        return asked


class Asking:
    """Before and after a round ``model`` is on the device, and training rests."""

    def __init__(self, served: Served, model: str, training: OnCall) -> None:
        self._requests = Requests(served, model, training)
        self._model = model
        for _ in range(WARM_UPS):
            for each in (model + TWIN, model):
                self._requests.ask(each)

    def round(self, taken: Taken) -> None:
        ask, preempt = self._requests.ask, self._requests.preempt
        note(taken, READY, ask(self._model))
        note(taken, "cold", ask(self._model + TWIN))
        note(taken, "preempting, cold", preempt(self._model))
        note(taken, "preempting", preempt(self._model))


def note(taken: Taken, way: str, asked: Asked) -> None:
    taken[way].append(asked.answered_s)
    taken[f"{way}: first layer"].append(asked.first_layer_s)


class Without:
    """Processes without Carpool.  ``core``: of all of them, if they may use one only."""

    def __init__(self, listener: Listener, model: str, stack: ExitStack, core: int | None) -> None:
        self._listener = listener
        self._model = model
        self._core = core
        self._ready = stack.enter_context(listener.plain(model, core=core))
        self._both = stack.enter_context(listener.plain(model, core=core))
        self._chance = random.Random(0)
        self._ready.tell("ask")
        self._both.tell("fetch")

    def at_once(self, taken: Taken) -> None:
        taken[PLAIN].append(seconds(self._ready, "ask"))
        self._both.tell("train")
        time.sleep(self._chance.uniform(0, BEFORE_S))
        taken["one process"].append(seconds(self._both, "fetch"))
        self._both.tell("rest")

    def started(self, taken: Taken) -> None:
        """What needs processes that are started for it."""
        with self._listener.plain(core=self._core) as training:
            training.tell("train")
            time.sleep(self._chance.uniform(0, BEFORE_S))
            taken["unmanaged"].append(seconds(self._ready, "ask"))
            begin = time.monotonic()
        with self._listener.plain(self._model, core=self._core) as started:
            started.tell("ask")
            taken["stop-and-start"].append(time.monotonic() - begin)


def first_group_bytes(kept: Path) -> int:
    profile = decode(kept.read_bytes(), Profile)
    return sum(layer.size for layer in profile.layers[: pipelined(profile)[0]])


def time_copies(size: int, taken: Taken) -> None:
    taken["copy, pages there"].append(_copy_s(size, populated=True))
    taken["copy, new pages"].append(_copy_s(size, populated=False))


def _copy_s(size: int, *, populated: bool) -> float:
    """A plain copy into memory as devices have it.  ``populated``: its pages are there before."""
    source = np.ones(size, np.uint8)
    file = memfd.create("copy", size, sealed=True)
    flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if populated else 0)
    target = np.frombuffer(mmap.mmap(file, size, flags), np.uint8)
    begin = time.monotonic()
    np.copyto(target, source)
    taken = time.monotonic() - begin
    os.close(file)
    return taken


def figures_of(model: str, taken: Taken, first_group: int) -> list[Figure]:
    targets = {"preempting": TARGET, "preempting, cold": TARGET}
    bases = {**dict.fromkeys(("preempting", "preempting, cold", "cold"), READY), READY: PLAIN}
    bases |= dict.fromkeys(("one process", "unmanaged", "stop-and-start"), PLAIN)
    ratios = [_ratio(model, taken, way, base, targets.get(way)) for way, base in bases.items()]
    starts = {"cold": START_TARGET_MS, "preempting, cold": None}
    return ratios + [_start(model, taken, way, target, first_group) for way, target in starts.items()]


def _ratio(model: str, taken: Taken, way: str, base: str, target: float | None) -> Figure:
    ratios = [one / other for one, other in zip(taken[way], taken[base], strict=True)]
    detail = {f"{side}_ms": _median_ms(taken[side]) for side in (way, base)}
    return median_figure("serving", f"{model}: {way} / {base}", "ratio", ratios, target=target, detail=detail)


def _start(model: str, taken: Taken, way: str, target: float | None, first_group: int) -> Figure:
    """The request's own way to the first layer is the same with a ready model, and no part of it."""
    ends, ready, copies = (
        taken[each] for each in (f"{way}: first layer", f"{READY}: first layer", "copy, pages there")
    )
    beyond = [1000 * (end - usual - copy) for end, usual, copy in zip(ends, ready, copies, strict=True)]
    detail = {
        "request_to_first_layer_ms": _median_ms(ends),
        "of_the_ready_model_ms": _median_ms(ready),
        "first_group_mib": first_group / MIB,
        "its_copy_ms": _median_ms(copies),
        "its_copy_to_new_pages_ms": _median_ms(taken["copy, new pages"]),
    }
    name = f"{model}: first layer, {way}, later than that of the ready model and a plain copy of the first group"
    return median_figure("serving", name, "ms", beyond, target=target, detail=detail)


def _median_ms(values: list[float]) -> float:
    return 1000 * statistics.median(values)
