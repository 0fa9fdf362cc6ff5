"""Trains, and computes requests, as it is told: ``python -m benchmarks.workloads.on_call SOCKET DEVICE [MODEL]``.

Plain PyTorch; ``DEVICE`` is what PyTorch calls it.  On a CPU a small CNN is trained, on a GPU ResNet-50 with a batch of
32.  Whoever listens at the socket sends words, a line each, and gets a line of JSON for each of them:

- ``train``: from now on, until ``rest``.  The answer comes when two iterations are done.
- ``rest``: the answer has the ``ends`` of the iterations since ``train``, on CLOCK_MONOTONIC.  On a GPU nothing
  waits for an iteration, as in most scripts: these are the times at which all of it had been submitted.
- ``ask``: the model computes its batch; training goes on afterwards.
- ``fetch``: the same, but the weights are copied from elsewhere in memory before.

The end of the connection is the end of the process.
"""

from __future__ import annotations

import importlib
import json
import socket
import sys
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import nn

from benchmarks.workloads import hosted
from benchmarks.workloads.train import cnn
from carpool.protocol.packets import readable

_models = importlib.import_module("tools.gpu_check.programs.models")


def small() -> Any:
    net, inputs, labels = cnn()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    return _models.Training(net, lambda: nn.functional.cross_entropy(net(inputs), labels), optimizer)


def large(device: torch.device) -> Any:
    make, batch = _models.MODELS["resnet50"]
    return make(device, batch)


class Training:
    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self._on_gpu = device.type == "cuda"
        self._workload = large(device) if self._on_gpu else small()
        self.ends: list[float] = []

    def step(self) -> None:
        loss = self._workload.iteration()
        if not self._on_gpu:
            loss.item()
        self.ends.append(time.monotonic())

    def finish(self) -> None:
        """Returns when all iterations are computed."""
        if self._on_gpu:
            torch.cuda.synchronize()


class Answering:
    def __init__(self, name: str, device: torch.device) -> None:
        self._device = device
        self._model = hosted.hosted(name).eval().requires_grad_(False).to(device)
        self._x = hosted.batch(name)

    @cached_property
    def _kept(self) -> list[torch.Tensor]:
        """The weights once more, as those of a model that is not on the device."""
        kept = [tensor.to("cpu", copy=True) for tensor in self._model.state_dict().values()]
        return [tensor.pin_memory() for tensor in kept] if self._device.type == "cuda" else kept

    def ask(self) -> None:
        with torch.inference_mode():
            self._model(self._x.to(self._device)).cpu()

    def fetch(self) -> None:
        for tensor, kept in zip(self._model.state_dict().values(), self._kept, strict=True):
            tensor.copy_(kept, non_blocking=True)
        self.ask()


def serve(connection: socket.socket, training: Training, answering: Answering | None) -> None:
    words = connection.makefile()
    busy = False
    while True:
        while busy and not readable(connection.fileno()):
            training.step()
        word = words.readline().strip()
        answer: dict[str, Any] = {}
        match word:
            case "":
                return
            case "train":
                busy, training.ends = True, []
                training.step()
                training.step()
            case "rest":
                training.finish()
                busy, answer = False, {"ends": training.ends}
            case _:
                assert answering is not None
                actions: dict[str, Callable[[], None]] = {"ask": answering.ask, "fetch": answering.fetch}
                actions[word]()
        connection.sendall(json.dumps(answer).encode() + b"\n")


def main(path: str, kind: str, name: str | None = None) -> None:
    device = torch.device(kind)
    training = Training(device)
    answering = None if name is None else Answering(name, device)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(b"{}\n")
        serve(connection, training, answering)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
