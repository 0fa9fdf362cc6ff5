"""Training beside services on one simulated device: what it gets of the time in which they do not compute.

The training is Salus's `resnet50_25`; the models are ResNet-152, Inception-v3 and BERT-base, batch 8, in equal parts.
"""

from __future__ import annotations

from benchmarks.figures import Figure, median_figure
from benchmarks.served import SIMULATED, TRANSFER_US, milliseconds, networks, poisson, serve
from carpool.core.model import MIB
from carpool.sim.generators.parameters import workload
from carpool.sim.model.served_models import Services

LOADS = (0, 10, 50, 90)
#: Seconds that the training takes alone.
ALONE_S, QUICK_ALONE_S = 60, 5
DEADLINE_US = 100_000
ACTIVATIONS = 500 * MIB  # of a batch of 8; an assumption
SPARE = 64 * MIB  # memory is granted in steps
TARGET = 0.9
#: How many of the three fit beside the training.
ROOM = {"all three fit": 3, "two of three fit": 2}


def run(quick: bool) -> list[Figure]:
    return [_figure(name, fit, load, quick) for name, fit in ROOM.items() for load in LOADS]


def _figure(room: str, fit: int, load: int, quick: bool) -> Figure:
    alone_us = (QUICK_ALONE_S if quick else ALONE_S) * 1_000_000
    kinds, job = networks(), workload("resnet50_25").job(0, 0, alone_us, 1.0)
    mean_us = sum(kind.compute_us for kind in kinds) / len(kinds)
    lasts_us = 1.3 * alone_us / (1 - load / 100)  # longer than the training beside it
    arrivals = poisson(kinds, [1.0] * 3, load / 100, round(lasts_us * load / 100 / mean_us)) if load else [()] * 3
    models = tuple(kind.served(times, deadline_us=DEADLINE_US) for kind, times in zip(kinds, arrivals, strict=True))
    weights = sorted((kind.weights for kind in kinds), reverse=True)
    memory = job.persistent + job.ephemeral + ACTIVATIONS + sum(weights[:fit]) + SPARE
    services = Services(models, activations=ACTIVATIONS, transfer_us=TRANSFER_US)
    result, summary = serve(services, [job], device_memory=memory)
    share = summary.jobs_share
    assert share is not None
    (trained,) = result.jobs
    name = f"{SIMULATED}, {room}, load {load} %: training / its idle share"
    detail = {
        "alone_s": job.duration_us / 1e6,
        "beside_s": trained.jct_us / 1e6,
        "services_compute": round(summary.computing, 3),
        "pauses": trained.pauses,
        "p50_ms": milliseconds(summary.all.p50_s),
        "p99_ms": milliseconds(summary.all.p99_s),
        "missed": summary.all.missed,
        "requests": summary.all.requests,
        "copies": summary.all.copies,
    }
    return median_figure("services_training", name, "ratio", [share], target=TARGET, at_least=True, detail=detail)
