"""What two jobs that share the GPU get done, against the same scripts one after another without Carpool, in one run.

Throughput 1 means as much work in as much time: it is counted while both have work, so start-up is on neither side.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from benchmarks.shares import total_throughput
from tools.gpu_check.daemon import DEFAULT_TURNS, Daemon, daemon
from tools.gpu_check.measurements.iterations import spread
from tools.gpu_check.meeting import outputs_together
from tools.gpu_check.mps import mps_server
from tools.gpu_check.registry import Figures, Needs, measure
from tools.gpu_check.scripts import needs_cuda, run, run_together

ROUNDS = 2
PROGRAM, SECONDS, BRIEF = "iterations.py", "20", "5"
Ends = list[float]


def ends_of(output: str) -> Ends:
    return json.loads(output)["ends"]


def alone(model: str, seconds: str = SECONDS) -> Ends:
    return ends_of(run(PROGRAM, model, seconds, preload=False))


def at_once(shared: Daemon, models: list[str], seconds: str = SECONDS) -> list[Ends]:
    outputs = outputs_together(shared, [[PROGRAM, model, seconds] for model in models])
    return [ends_of(output) for output in outputs.values()]


def in_one_lane(*models: str) -> Callable[[], Figures]:
    def function() -> Figures:
        needs_cuda()
        with daemon("", **DEFAULT_TURNS, max_lanes=1) as shared:
            rounds = [
                total_throughput([alone(model) for model in models], at_once(shared, list(models)))
                for _ in range(ROUNDS)
            ]
        return spread("throughput", rounds)

    function.__name__ = f"lane_of_{'_and_'.join(models)}"
    return function


for pair in (("resnet50", "resnet50"), ("resnet50", "bert")):
    measure(f"two training jobs in one lane, total throughput / one after the other: {', '.join(pair)}", Needs.TORCH)(
        in_one_lane(*pair)
    )


@measure("two launch-bound jobs in one lane for 5 s, total throughput / one after the other", Needs.TORCH)
def lane_in_brief() -> Figures:
    needs_cuda()
    own = alone("mlp", BRIEF)
    with daemon("", **DEFAULT_TURNS, max_lanes=1) as shared:
        return {"throughput": total_throughput([own] * 2, at_once(shared, ["mlp"] * 2, BRIEF))}


def two_lanes(sharing: str) -> Figures:
    """With Carpool, and with nothing but the driver."""
    needs_cuda()
    models = ["resnet50", "resnet50"]
    carpool, plain = [], []
    with daemon("", **DEFAULT_TURNS, max_lanes=2, sharing=sharing) as shared:
        for _ in range(ROUNDS):
            bare = [alone(models[0])] * 2
            carpool.append(total_throughput(bare, at_once(shared, models)))
            plain.append(total_throughput(bare, list(map(ends_of, run_together(PROGRAM, models[0], SECONDS, count=2)))))
    return spread("Carpool", carpool) | spread("without Carpool", plain)


@measure("two training jobs in two lanes, total throughput / one after the other: the driver slices time", Needs.TORCH)
def two_lanes_timeslice() -> Figures:
    return two_lanes("timeslice")


@measure("two training jobs in two lanes, total throughput / one after the other: an MPS server", Needs.TORCH)
def two_lanes_mps() -> Figures:
    """One after the other runs with the server, too."""
    needs_cuda()
    with mps_server():
        return two_lanes("mps")
