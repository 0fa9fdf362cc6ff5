"""A training loop: weights, scratch memory of which a part lives on, and what a library allocates beside PyTorch.

    train.py RESULT [--weights MIB] [--scratch MIB] [--live KIB] [--iterations N] [--seed N] [--optimizer] [--meet N]

``--live``: PyTorch's list of live blocks names so much of the scratch memory; the rest is written anew each time.
``--meet``: it waits for the others after so many iterations; before, the command in $HELPER runs to its end.
``--optimizer``: steps of a real optimizer are the iterations, instead of `carpool.iteration`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from gpu import MIB, Gpu
from meeting import again, meet

import carpool
from carpool.runtime import native

LIBRARY = 256 << 10


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("result", type=Path)
    parser.add_argument("--weights", type=int, default=4)
    parser.add_argument("--scratch", type=int, default=4)
    parser.add_argument("--live", type=int)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--meet", type=int, default=0)
    parser.add_argument("--optimizer", action="store_true")
    return parser.parse_args()


def announced() -> contextlib.AbstractContextManager[None]:
    return carpool.iteration()


def stepping() -> Callable[[], contextlib.AbstractContextManager[None]]:
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    @contextlib.contextmanager
    def iteration() -> Iterator[None]:
        loss = layer(torch.ones(4)).sum()  # the first one tells that iterations have begun
        yield
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return iteration


def show_live_blocks(address: int, size: int, live: int) -> None:
    """What PyTorch's allocator would say.  It is not in use here, as there is no GPU."""
    blocks = [
        {"address": address, "size": live, "state": "active_allocated"},
        {"address": address + live, "size": size - live, "state": "inactive"},
    ]
    segment = {"address": address, "total_size": size, "segment_pool_id": (0, 0), "blocks": blocks}
    torch.cuda.is_initialized = lambda: True
    torch.cuda.memory_snapshot = lambda include_traces=True: [segment]


def helped() -> None:
    subprocess.run(shlex.split(os.environ.get("HELPER", "true")), check=True)


def main() -> None:
    given = options()
    weights, scratch = given.weights * MIB, given.scratch * MIB
    live = scratch if given.live is None else given.live << 10
    gpu = Gpu()
    model, library = gpu.segment(weights), gpu.memory(LIBRARY)
    gpu.fill(model, weights, given.seed)
    gpu.fill(library, LIBRARY, given.seed + 1)
    iteration = stepping() if given.optimizer else announced
    work, losses = 0, []
    for number in range(given.iterations):
        if number == given.meet:
            helped()
            meet()
        again()
        with iteration():
            if not work:
                work = gpu.segment(scratch)
                gpu.fill(work, scratch, given.seed + 2)
                if given.live is not None:
                    show_live_blocks(work, scratch, live)
            gpu.fill(work + live, scratch - live, number)
            gpu.mix(work, live, given.seed + number)
            gpu.mix(model, weights, given.seed + number)
            gpu.mix(library, LIBRARY, number)
            gpu.add(model, work, min(weights, scratch))
            gpu.add(model, library, LIBRARY)
            losses.append(gpu.word(model))
        if number == 2:
            print("under way", flush=True)
    digest = gpu.digest([(model, weights), (work, live), (library, LIBRARY)])
    ours = native.preloaded()
    sees = gpu.devices()
    found = {"digest": [digest, *losses], "device": sees[gpu.index], "sees": sees}
    given.result.write_text(json.dumps(found | {"counters": ours.counters() if ours else {}}))


main()
