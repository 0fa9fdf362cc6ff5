"""Trains, and computes requests, as it is told: ``python -m benchmarks.workloads.on_call SOCKET [MODEL]``.

Plain PyTorch.  Whoever listens at the socket sends words, a line each, and gets a line of JSON for each of them:

- ``train``: from now on, until ``rest``.  The answer comes when two iterations are done.
- ``rest``: the answer has the ``ends`` of the iterations since ``train``, on CLOCK_MONOTONIC.
- ``ask``: the model computes its batch; training goes on afterwards.
- ``fetch``: the same, but the weights are copied from elsewhere in memory before.

The end of the connection is the end of the process.
"""

from __future__ import annotations

import json
import select
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


class Training:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self._model, self._inputs, self._labels = cnn()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        self.ends: list[float] = []

    def step(self) -> None:
        self._optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self._model(self._inputs), self._labels)
        loss.backward()
        self._optimizer.step()
        loss.item()
        self.ends.append(time.monotonic())


class Answering:
    def __init__(self, name: str) -> None:
        self._model = hosted.hosted(name).eval().requires_grad_(False)
        self._x = hosted.batch(name)

    @cached_property
    def _kept(self) -> list[torch.Tensor]:
        """The weights once more, as those of a model that is not on the device."""
        return [tensor.clone() for tensor in self._model.state_dict().values()]

    def ask(self) -> None:
        with torch.inference_mode():
            self._model(self._x)

    def fetch(self) -> None:
        for tensor, kept in zip(self._model.state_dict().values(), self._kept, strict=True):
            tensor.copy_(kept)
        self.ask()


def serve(connection: socket.socket, training: Training, answering: Answering | None) -> None:
    words = connection.makefile()
    busy = False
    while True:
        while busy and not select.select([connection], [], [], 0)[0]:
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
                busy, answer = False, {"ends": training.ends}
            case _:
                assert answering is not None
                actions: dict[str, Callable[[], None]] = {"ask": answering.ask, "fetch": answering.fetch}
                actions[word]()
        connection.sendall(json.dumps(answer).encode() + b"\n")


def main(path: str, name: str | None = None) -> None:
    training = Training()
    answering = None if name is None else Answering(name)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(b"{}\n")
        serve(connection, training, answering)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
