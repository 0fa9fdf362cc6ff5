"""A program: workers of one model, killed with SIGKILL in every group of a load, beside others that load the same copy.

Prints what happened as JSON.  One thread computes: workers are forked, and a fork takes no other thread along.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback

import torch

from carpool.devices import memfd
from carpool.serve.model import skeleton
from carpool.serve.model.bound_model import BoundModel
from carpool.serve.model.weights_device import WeightsMemory
from carpool.serve.plan.manifest import Source
from carpool.serve.prepare.prepare import Prepared, prepare, same_bits
from tests.serve import zoo


def killed_in(group: int, prepared: Prepared, device: int) -> int:
    """A worker that is killed when so many groups are there, or a few more; returns how many it left."""
    said, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        model = BoundModel(prepared.entry, prepared.image, WeightsMemory(device))
        model.groups.load()
        model.groups.wait(group)
        os.write(say, b"x")
        signal.pause()
    os.read(said, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(said), os.close(say)
    return _there(prepared, device)


def _there(prepared: Prepared, device: int) -> int:
    model = BoundModel(prepared.entry, prepared.image, WeightsMemory(device))
    there = model.groups.there
    model.close()
    return there


def answers(name: str, prepared: Prepared, device: int, workers: int) -> list[bool]:
    """Workers that load the same copy at once: is each one's output that of the model alone?"""
    pids = []
    for _ in range(workers):
        pid = os.fork()
        if pid == 0:
            try:
                right = is_right(name, prepared, device)
            except BaseException:  # noqa: BLE001 - a forked worker must not go on as its parent
                traceback.print_exc()
                right = False
            os._exit(0 if right else 1)
        pids.append(pid)
    return [os.waitpid(pid, 0)[1] == 0 for pid in pids]


def is_right(name: str, prepared: Prepared, device: int) -> bool:
    inputs = (zoo.INPUTS[name](),)
    alone = skeleton.build(getattr(zoo, name), prepared.entry.source.seed, weights=True)
    with torch.inference_mode():
        expected = alone(*inputs)
    return same_bits(BoundModel(prepared.entry, prepared.image, WeightsMemory(device))(*inputs), expected)


def main() -> None:
    name = sys.argv[1]
    torch.set_num_threads(1)
    inputs = (zoo.INPUTS[name](),)
    prepared = prepare(Source(f"tests.serve.zoo:{name}", seed=7), inputs, group=zoo.per_layer)
    groups = len(prepared.entry.layout.bounds) - 1
    found = []
    for group in range(groups + 1):
        device = memfd.create("device", prepared.entry.device_bytes, sealed=True)
        there = killed_in(group, prepared, device)
        found.append({"group": group, "there": there, "right": answers(name, prepared, device, 3)})
        os.close(device)
    print(json.dumps({"groups": groups, "kills": found}))


if __name__ == "__main__":
    main()
