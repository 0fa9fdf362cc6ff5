"""A worker of several models: it computes with the weights of each in turn, and compares with what is in the host.

    service.py RESULT [--models N] [--mib N] [--rounds N] [--spin US]

Each model's weights come in groups of a MiB; ``--spin``: so long the device works on each of them.
"""

from __future__ import annotations

import argparse
import json
import os
from hashlib import sha256
from pathlib import Path

import numpy
import torch
from gpu import MIB, Gpu
from meeting import meet

from carpool.runtime import native
from carpool.serve.model import seat_device
from carpool.serve.model.image_store import write_image
from carpool.serve.model.native_groups import Groups
from carpool.serve.plan.manifest import lay_out


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("result", type=Path)
    for name, default in (("models", 3), ("mib", 8), ("rounds", 10), ("spin", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


class Model:
    def __init__(self, number: int, mib: int) -> None:
        generator = numpy.random.default_rng(number)
        weights = generator.integers(-(2**31), 2**31, (mib, MIB // 4), dtype=numpy.int32)
        self.sum = weights.sum(0, dtype=numpy.int32).tobytes()  # wraps around, as the device does
        layout = lay_out([MIB] * mib, [[k] for k in range(mib)], [], tuple(range(1, mib + 1)))
        data = memoryview(weights).cast("B")
        parts = [(offset, data[k * MIB : (k + 1) * MIB]) for k, offset in enumerate(layout.offsets)]
        self.image = write_image(f"model{number}", layout.size, parts)
        self.layout, self.mib = layout, mib
        self.key = sha256(bytes([number])).digest()
        self.number = int.from_bytes(self.key[:8], "little")
        self.groups: Groups | None = None
        self.header = -1
        self.copied = 0

    def place(self) -> None:
        file = seat_device.place(self.number, self.layout.bounds[-1], reload_us=1000 * self.mib)
        address = seat_device.address(self.number)
        assert address
        if self.groups is None:
            assert file is not None
            self.groups, self.header = Groups(file, self.image, self.layout.bounds, self.key, address), file
        elif file is not None:  # a new daemon does not know what we have
            assert os.path.sameopenfile(file, self.header)
            os.close(file)
        assert self.groups is not None and self.groups.address == address, "weights never move"

    def answer(self, gpu: Gpu, total: int, spin: int) -> bool:
        """Whether what it computes is what it should be, to the last bit."""
        self.place()
        assert self.groups is not None
        self.copied += self.groups.there < self.groups.count
        self.groups.load()
        seat_device.take()
        gpu.fill(total, MIB, 0)
        for k, offset in enumerate(self.layout.offsets):
            self.groups.follow(k + 1, 0)
            gpu.add(total, self.groups.address + offset, MIB)
            gpu.launch("spin_us", spin)
        right = gpu.content(total, MIB) == self.sum
        self.groups.stop()
        seat_device.release()
        return right


def nothing_lives(segment: int) -> None:
    """What PyTorch's allocator would say between two requests.  It is not in use here, as there is no GPU."""
    block = {"address": segment, "size": MIB, "state": "inactive"}
    found = {"address": segment, "total_size": MIB, "segment_pool_id": (0, 0), "blocks": [block]}
    torch.cuda.is_initialized = lambda: True
    torch.cuda.memory_snapshot = lambda include_traces=True: [found]


def main() -> None:
    given, library = options(), native.preloaded()
    assert library is not None
    models = [Model(number, given.mib) for number in range(given.models)]
    gpu = Gpu()
    library.begin_iterations()
    total = gpu.segment(MIB)
    nothing_lives(total)
    seat_device.release()
    meet()
    print("under way", flush=True)
    right = sum(model.answer(gpu, total, given.spin) for _ in range(given.rounds) for model in models)
    result = {"right": right, "of": given.models * given.rounds, "copied": sum(model.copied for model in models)}
    given.result.write_text(json.dumps(result | {"counters": library.counters()}))


main()
