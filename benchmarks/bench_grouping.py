"""How long the best pipeline groups of a model are searched for, and what they are worth: the finish beside one
transfer per layer and one for all.

The models' layers are real, their times are not measured here.  `V100` is fitted to the authors' own re-run of
PipeSwitch on a V100 (figures 5 and 7): what a ready model takes; what one group without a pipeline takes more, which is
9.7 to 10.5 GB per second; and what a transfer per layer adds to that, 41 to 57 µs each.  `FAST` is an assumption: a
device that computes eight times as fast, so that moving the weights of two of the models takes longer than computing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.figures import Figure, measured_once, median_figure
from benchmarks.networks import Work, bert_base, inception_v3, resnet152
from carpool.serve.plan.grouping import NS_PER_S, Grouping, LayerCost, LinkCost, finish, optimal, start

TARGET_MS = 50.0
NS_PER_MS = 1_000_000
#: What each layer takes on a V100 however small it is; the rest of a model's time goes by multiplications.
LAUNCH_NS = 20_000


@dataclass(frozen=True, slots=True)
class Network:
    name: str
    works: Sequence[Work]
    ready_ns: int  # batch 8, weights on a V100: figure 5, the authors' re-run of 2021

    def layers(self, faster: int) -> list[LayerCost]:
        operations = sum(work.operations for work in self.works)
        shared = self.ready_ns - LAUNCH_NS * len(self.works)
        return [
            LayerCost(work.size, (LAUNCH_NS + shared * work.operations // operations) // faster) for work in self.works
        ]


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    link: LinkCost
    faster: int  # than a V100


NETWORKS = (
    Network("ResNet-152", resnet152(), 37_064_000),
    Network("Inception-v3", inception_v3(), 40_535_800),
    Network("BERT-base", bert_base(), 39_332_700),
)
V100 = Device("V100", LinkCost(50_000, 10 * NS_PER_S), 1)
FAST = Device("fast", LinkCost(5_000, 50 * NS_PER_S), 8)


def run(quick: bool) -> list[Figure]:
    runs = 3 if quick else 15
    figures = []
    for device in (V100, FAST):
        for network in NETWORKS:
            figures += [_search(device, network, runs), *_worth(device, network)]
    return figures


def _search(device: Device, network: Network, runs: int) -> Figure:
    layers = network.layers(device.faster)
    found = [_timed(layers, device.link) for _ in range(runs)]
    name = f"search, {network.name}, {len(network.works)} layers, {device.name}"
    times_ms, groups = [ms for ms, _ in found], len(found[0][1])
    return median_figure("grouping", name, "ms", times_ms, target=TARGET_MS, detail={"groups": groups})


def _worth(device: Device, network: Network) -> list[Figure]:
    """The finish of the best groups beside that of the two simple ways; computed, not measured."""
    layers, link = network.layers(device.faster), device.link
    best, count = optimal(layers, link), len(layers)
    simple = {"one per layer": tuple(range(1, count + 1)), "one for all": (count,)}
    return [
        measured_once(
            "grouping",
            f"finish / {way}, {network.name}, {device.name}",
            "ratio",
            finish(layers, link, best) / finish(layers, link, other),
            target=1.0,
            finish_ms=finish(layers, link, best) / NS_PER_MS,
            other_finish_ms=finish(layers, link, other) / NS_PER_MS,
            start_ms=start(layers, link, best) / NS_PER_MS,
            other_start_ms=start(layers, link, other) / NS_PER_MS,
            compute_ms=sum(layer.compute_ns for layer in layers) / NS_PER_MS,
        )
        for way, other in simple.items()
    ]


def _timed(layers: Sequence[LayerCost], link: LinkCost) -> tuple[float, Grouping]:
    """Milliseconds, and what was found."""
    begin = time.perf_counter_ns()
    found = optimal(layers, link)
    return (time.perf_counter_ns() - begin) / NS_PER_MS, found
