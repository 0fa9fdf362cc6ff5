"""Two models in turns on one simulated device that holds one of them (PipeSwitch, OSDI 2020, figure 6).

In each cycle one model gets requests, one after another without a gap; then the other.  Ready models would need the
computing alone.  Latencies are those of a second run at a load of 80 %, as multiples of the computing.
"""

from __future__ import annotations

from benchmarks.figures import Figure, median_figure
from benchmarks.served import SIMULATED, TRANSFER_US, Kind, networks, serve
from carpool.core.model import Micros
from carpool.sim.model.result import Result
from carpool.sim.model.served_models import GROUP_BYTES, Services

CYCLES_S, QUICK_CYCLES_S = (1, 2, 5, 10, 30), (1, 2)
MODELS = ("ResNet-152", "BERT-base")
ROUNDS, QUICK_ROUNDS = 10, 2  # times that each model has its cycle
GROUPS = {"groups of 4 MiB": GROUP_BYTES, "one group": 1 << 40}
TARGET = 0.97
LOAD = 0.8


def run(quick: bool) -> list[Figure]:
    cycles, rounds = (QUICK_CYCLES_S, QUICK_ROUNDS) if quick else (CYCLES_S, ROUNDS)
    return [_figure(way, group, cycle, rounds) for way, group in GROUPS.items() for cycle in cycles]


def _figure(way: str, group: int, cycle_s: int, rounds: int) -> Figure:
    kinds = [kind for kind in networks() if kind.name in MODELS]
    full, relaxed = (_serve(kinds, cycle_s, rounds, group, load) for load in (1.0, LOAD))
    computing_us = sum(kind.compute_us * len(times) for kind, times in _requests(kinds, cycle_s, rounds, 1.0))
    assert full.services is not None
    assert relaxed.services is not None
    slower = [
        sum(model.latencies_us) / len(model.latencies_us) / model.model.compute_us for model in relaxed.services.models
    ]
    name = f"{SIMULATED}, {way}, cycles of {cycle_s} s: throughput / ready models"
    detail = {
        "mean_latency_ratio": [round(each, 4) for each in slower],
        "copies": sum(model.copies for model in full.services.models),
        "requests": sum(model.settled for model in full.services.models),
    }
    target, ratio = TARGET if group == GROUP_BYTES else None, computing_us / full.services.ended_us
    return median_figure("services_cycles", name, "ratio", [ratio], target=target, at_least=True, detail=detail)


def _requests(kinds: list[Kind], cycle_s: int, rounds: int, load: float) -> list[tuple[Kind, tuple[Micros, ...]]]:
    """As many in each cycle as fit into it; the next cycle begins when they could have been computed."""
    times: dict[str, list[Micros]] = {kind.name: [] for kind in kinds}
    now = 0
    for number in range(2 * rounds):
        kind = kinds[number % 2]
        apart = round(kind.compute_us / load)
        requests = cycle_s * 1_000_000 // apart
        times[kind.name] += [now + place * apart for place in range(requests)]
        now += requests * apart
    return [(kind, tuple(times[kind.name])) for kind in kinds]


def _serve(kinds: list[Kind], cycle_s: int, rounds: int, group: int, load: float) -> Result:
    models = [kind.served(times, max_queue=1_000_000) for kind, times in _requests(kinds, cycle_s, rounds, load)]
    services = Services(tuple(models), group=group, transfer_us=TRANSFER_US)
    return serve(services, device_memory=max(kind.weights for kind in kinds))[0]
