"""A launch-bound loop that is measured on request: ``launches.py SOCKET KIND``.

For each number that comes through the socket so many iterations run, a few more before them; the answer is their time
in seconds and when the first of all had ended, in seconds of the machine's monotonic clock.  KIND: ``eager``, ``graph``
(the whole iteration is one), ``memory`` (segments come and go; for PyTorch without a cache).
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

DEVICE, WARM = "cuda", 5


def training() -> Callable[[], None]:
    layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    inputs = torch.zeros(32, 64, device=DEVICE)

    def iteration() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(inputs).sum().backward()
        optimizer.step()

    return iteration


def graph() -> Callable[[], None]:
    iteration, side = training(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            iteration()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        iteration()
    return captured.replay


def memory() -> Callable[[], None]:
    iteration = training()

    def with_memory() -> None:
        iteration()
        for size in range(20, 24):
            torch.empty(1 << size, dtype=torch.uint8, device=DEVICE)

    return with_memory


KINDS = {"eager": training, "graph": graph, "memory": memory}


def timed(step: Callable[[], None], count: int) -> float:
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    begin = time.monotonic()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return time.monotonic() - begin


def main(path: str, kind: str) -> None:
    step = KINDS[kind]()
    step()
    torch.cuda.synchronize()
    first = time.monotonic()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rw") as file:
            for line in file:
                print(json.dumps([timed(step, int(line)), first]), file=file, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
