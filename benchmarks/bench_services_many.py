"""42 models on one simulated device that holds a quarter of them (Salus, section 5.3), Poisson requests, three orders.

Load is the share of the time for which requests compute; copies come on top.  A model's deadline is a multiple of the
longest copy and computing of all: the smaller its batch, the more somebody waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import Figure, measured_once
from benchmarks.served import SIMULATED, TRANSFER_US, Kind, milliseconds, poisson, salus, serve
from carpool.core.model import Serving, Settings
from carpool.sim.model.served_models import Services
from carpool.sim.services.summary import ServicesSummary

LOADS = (10, 30, 40, 50, 70, 90)
QUICK_LOADS = (10, 40)
REQUESTS, QUICK_REQUESTS = 5000, 500
#: No deadline is to be missed below this load.
TARGET_LOAD = 50
#: By batch size: the deadline in multiples of the longest copy and computing, and the priority (1 comes first).
DEADLINES = {1: 3, 5: 5, 10: 10}
PRIORITIES = {1: 1, 5: 2, 10: 3}
HELD = 4  # a device holds one of so many bytes
POPULARITIES = ("equal", "1 / rank")


def run(quick: bool) -> list[Figure]:
    kinds, figures = salus(), []
    for popularity in POPULARITIES[: 1 if quick else None]:
        for serving in Serving:
            figures += _order(kinds, popularity, serving, quick)
    return figures


def _order(kinds: Sequence[Kind], popularity: str, serving: Serving, quick: bool) -> list[Figure]:
    rows, missed = [], 0
    name = f"{SIMULATED}, {popularity} popularity, {serving.name.lower()}"
    for load in QUICK_LOADS if quick else LOADS:
        summary = _serve(kinds, popularity, serving, load, QUICK_REQUESTS if quick else REQUESTS)
        rows.append(_row(f"{name}, load {load} %: p99", summary))
        missed += (summary.all.missed or 0) if load < TARGET_LOAD else 0
    below = f"{name}: deadlines missed at loads below {TARGET_LOAD} %"
    return [measured_once("services_many", below, "requests", missed, target=0), *rows]


def _serve(kinds: Sequence[Kind], popularity: str, serving: Serving, load: int, requests: int) -> ServicesSummary:
    longest_us = max(kind.copy_us + kind.compute_us for kind in kinds)
    models = [
        kind.served(arrivals, deadline_us=DEADLINES[kind.batch] * longest_us, priority=PRIORITIES[kind.batch])
        for kind, arrivals in zip(kinds, poisson(kinds, _shares(popularity), load / 100, requests), strict=True)
    ]
    activations = max(kind.activations for kind in kinds)
    memory = activations + sum(kind.weights for kind in kinds) // HELD
    services = Services(tuple(models), activations=activations, transfer_us=TRANSFER_US)
    return serve(services, device_memory=memory, settings=Settings(serving=serving))[1]


def _shares(popularity: str) -> list[float]:
    """Of the requests; ranks are mixed, so that no network, and no batch size, is popular as such."""
    return [1.0 if popularity == "equal" else 1 / (11 * place % 43) for place in range(1, 43)]


def _row(name: str, summary: ServicesSummary) -> Figure:
    everything = summary.all
    p99_ms = milliseconds(everything.p99_s)
    assert p99_ms is not None, "some request is answered"
    return measured_once(
        *("services_many", name, "ms", p99_ms),
        p50_ms=milliseconds(everything.p50_s),
        missed=everything.missed,
        requests=everything.requests,
        per_s=round(everything.requests_per_s, 1),
        copies=everything.copies,
        copied_gib=round(everything.copied_gib, 1),
        turns=round(summary.turns, 3),
        computing=round(summary.computing, 3),
    )
