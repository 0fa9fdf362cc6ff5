"""Two models that take turns on a device with room for one, every 1 to 30 s; against the same model all the time."""

from __future__ import annotations

import itertools
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, median_figure, rounds_of
from benchmarks.through_serve import Served, room
from benchmarks.workloads.hosted import TWIN, batch

MODEL = "inception_v3"
CYCLES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
TARGET = 0.97
#: At least so long, and so many phases.
LEAST_S, LEAST_PHASES = 10.0, 2
WARM_UPS = 2


def run(quick: bool) -> list[Figure]:
    cycles, least_s = (CYCLES_S[:2], 2.0) if quick else (CYCLES_S, LEAST_S)
    return measure(MODEL, cycles, least_s, 1 if quick else rounds_of(2))


def measure(model: str, cycles_s: tuple[float, ...], least_s: float, rounds: int) -> list[Figure]:
    """The ready model is asked beside each cycle, for as long as a phase, but not for longer than ``least_s``."""
    with (
        tempfile.TemporaryDirectory() as name,
        Served(Path(name), [model, model + TWIN], room(model)) as served,
    ):
        asking = Asking(served, model)
        taken = {cycle_s: [asking.both(cycle_s, least_s) for _ in range(rounds)] for cycle_s in cycles_s}
    return [figure for cycle_s, each in taken.items() for figure in figures_of(model, cycle_s, each)]


class Asking:
    """One request after the other."""

    def __init__(self, served: Served, model: str) -> None:
        self._served = served
        self._models = (model, model + TWIN)
        self._x = batch(model)
        for each in self._models * WARM_UPS:
            self._ask(each)

    def both(self, cycle_s: float, least_s: float) -> tuple[list[list[float]], list[float]]:
        """Latencies in each phase of the cycle, and those of the model that is ready then."""
        phases = max(LEAST_PHASES, math.ceil(least_s / cycle_s))
        order = itertools.islice(itertools.cycle(self._models), phases)
        cycle = [self._phase(model, cycle_s) for model in order]
        return cycle, self._phase(self._models[(phases - 1) % 2], min(cycle_s, least_s))

    def _phase(self, model: str, seconds: float) -> list[float]:
        end = time.monotonic() + seconds
        taken = [self._ask(model)]
        while time.monotonic() < end:
            taken.append(self._ask(model))
        return taken

    def _ask(self, model: str) -> float:
        return self._served.ask(model, self._x).answered_s


def figures_of(model: str, cycle_s: float, rounds: list[tuple[list[list[float]], list[float]]]) -> list[Figure]:
    throughputs, latencies = [], []
    for phases, ready in rounds:
        usual = statistics.mean(ready)
        throughputs.append(usual / statistics.mean(itertools.chain(*phases)))
        latencies.append(statistics.mean(phase[0] for phase in phases) / usual)
    detail: dict[str, Any] = {"ready_ms": 1000 * statistics.mean(statistics.mean(ready) for _, ready in rounds)}
    name = f"{model} and its twin every {cycle_s:g} s"
    return [
        median_figure("serving_cycles", f"{name}: throughput / ready", "ratio", throughputs,
                      target=TARGET, at_least=True, detail=detail | {"phases": len(rounds[0][0])}),
        median_figure("serving_cycles", f"{name}: latency of a phase's first request / ready", "ratio", latencies),
    ]  # fmt: skip
