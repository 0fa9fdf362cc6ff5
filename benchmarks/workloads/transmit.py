"""Requests for a model whose weights are not on the device yet, in every way of bringing them; beside a ready one.

``python -m benchmarks.workloads.transmit MODEL ROUNDS``: the last line is JSON, seconds per round and way.  One thread
computes.  The ways are gone through in another order in each round, so that a slow moment does not always hit the same.
"""

from __future__ import annotations

import importlib
import json
import mmap
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_model
from torch import Tensor, nn

from carpool.devices import memfd
from carpool.serve.model import skeleton, weights_file
from carpool.serve.model.bound_model import BoundModel
from carpool.serve.model.weights_device import WeightsMemory
from carpool.serve.plan.grouping import Grouping
from carpool.serve.plan.manifest import Profile, Source
from carpool.serve.prepare.prepare import pipelined, prepare

_bert = importlib.import_module("tools.gpu_check.programs.models.bert")
_resnet = importlib.import_module("tools.gpu_check.programs.models.resnet")


def resnet152() -> nn.Module:
    """He et al. 2015, table 1."""
    network: nn.Module = _resnet.network(((3, 64), (8, 128), (36, 256), (3, 512)))
    return network


def bert_base() -> nn.Module:
    """The words that it predicts, not a class."""
    network: nn.Module = _bert.Bert()
    return network


def images(batch: int, side: int) -> Tensor:
    return torch.rand(batch, 3, side, side)


def words(batch: int, length: int) -> Tensor:
    return torch.randint(_bert.WORDS, (batch, length))


#: Factory and input of each.  Small: copying takes about as long as computing.
MODELS: dict[str, tuple[str, Callable[[], Tensor]]] = {
    "resnet152": ("resnet152", lambda: images(8, 224)),
    "bert-base": ("bert_base", lambda: words(8, 128)),
    "resnet152-small": ("resnet152", lambda: images(1, 64)),
    "bert-base-small": ("bert_base", lambda: words(1, 16)),
}


def per_layer(profile: Profile) -> Grouping:
    return tuple(range(1, len(profile.layers) + 1))


def one_group(profile: Profile) -> Grouping:
    return (len(profile.layers),)


def opened(factory: str, x: Tensor, kept: Path, group: Callable[[Profile], Grouping]) -> BoundModel:
    """On a device of its own, whose pages are there."""
    source = Source(f"benchmarks.workloads.transmit:{factory}")
    entry, image, _ = prepare(source, (x,), kept=kept, group=group)
    model = BoundModel(entry, image, WeightsMemory(memfd.create("device", entry.device_bytes, sealed=True)))
    ready(model, x)
    return model


def ready(model: BoundModel, x: Tensor) -> float:
    model.groups.load()
    model.groups.wait()
    return timed(lambda: model(x))


def cold(model: BoundModel, x: Tensor) -> float:
    _empty(model)
    return timed(lambda: model(x))


def waiting(model: BoundModel, x: Tensor) -> float:
    def request() -> None:
        model.groups.load()
        model.groups.wait()
        model(x)

    _empty(model)
    return timed(request)


def first_group(model: BoundModel, _x: Tensor) -> float:
    def start() -> None:
        model.groups.load()
        model.groups.wait(1)

    _empty(model)
    return timed(start)


def from_file(module: nn.Module, weights: Path, x: Tensor) -> None:
    """Without a model store: the file is in the kernel's cache, but its weights are nowhere else."""
    weights_file.read(module, weights)
    compute(module, x)


def in_one_process(factory: str, weights: Path, x: Tensor) -> None:
    """Without a standby that has the structure: the process that computes makes the model first, as a script does."""
    from_file(skeleton.build(globals()[factory], 0, weights=True), weights, x)


def compute(module: nn.Module, x: Tensor) -> object:
    with torch.inference_mode():
        return module(x)


def _empty(model: BoundModel) -> None:
    model.groups.load()
    model.groups.wait()
    model.groups.stop()
    model.groups.drop()


def _file(size: int) -> Tensor:
    """Memory of the kind that images and devices are."""
    fd = memfd.create("copy", size, sealed=True)
    return torch.frombuffer(mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE), dtype=torch.uint8)


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(name: str, rounds: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as directory:
        return _measured(MODELS[name], rounds, Path(directory))


def _measured(model: tuple[str, Callable[[], Tensor]], rounds: int, directory: Path) -> dict[str, list[float]]:
    factory, make = model
    x, weights = make(), directory / "weights.safetensors"
    kept = directory / "profile.json"
    default, layered, whole = (opened(factory, x, kept, each) for each in (pipelined, per_layer, one_group))
    plain = skeleton.build(globals()[factory], 0, weights=True)
    save_model(plain, str(weights))
    size = default.groups.bounds[1] - default.groups.bounds[0]
    source, target = _file(size), _file(size)
    ways: dict[str, Callable[[], float]] = {
        "plain": lambda: timed(lambda: compute(plain, x)),
        "ready": lambda: ready(default, x),
        "default": lambda: cold(default, x),
        "per layer": lambda: cold(layered, x),
        "one group": lambda: cold(whole, x),
        "no pipeline": lambda: waiting(default, x),
        "no model store": lambda: timed(lambda: from_file(plain, weights, x)),
        "one process": lambda: timed(lambda: in_one_process(factory, weights, x)),
        "first group": lambda: first_group(default, x),
        "first group, plain copy": lambda: timed(lambda: target.copy_(source)),
    }
    taken = defaultdict(list)
    names = list(ways)
    for call in ways.values():
        call()  # warm
    for turn in range(rounds):
        begin = turn % len(names)
        for way in (*names[begin:], *names[:begin]):
            taken[way].append(ways[way]())
    return dict(taken)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
