"""Iterations that are replays of a captured graph, in a stream of their own.

graph.py RESULT [--seed N]
"""

from __future__ import annotations

import argparse
import ctypes
import json
from pathlib import Path

import torch  # noqa: F401 - attaches
from gpu import MIB, Gpu
from meeting import again, meet

import carpool
from carpool.runtime import native

ITERATIONS = 400


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("result", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    gpu = Gpu()
    model = gpu.segment(2 * MIB)
    gpu.fill(model, 2 * MIB, given.seed)
    with carpool.iteration():
        work = gpu.segment(2 * MIB)
        gpu.fill(work, 2 * MIB, given.seed)
    gpu.call("cuStreamCreate", ctypes.byref(gpu.stream), 0)

    def iteration() -> None:
        gpu.mix(work, 2 * MIB, given.seed)
        gpu.add(model, work, 2 * MIB)
        gpu.mix(model, 2 * MIB, given.seed)

    graph = gpu.captured(iteration)
    meet()
    for _ in range(ITERATIONS):
        again()
        with carpool.iteration():
            gpu.call("cuGraphLaunch", graph, gpu.stream)
            gpu.call("cuStreamSynchronize", gpu.stream)
    digest = gpu.digest([(model, 2 * MIB), (work, 2 * MIB)])
    ours = native.preloaded()
    given.result.write_text(json.dumps({"digest": digest, "counters": ours.counters() if ours else {}}))


main()
