"""Microseconds per training iteration of a small model, median: ``iterations.py mlp|conv|graph [DEVICE]``.

``mlp`` is bound by launches: many small layers, a small batch.  ``graph`` is the same as one CUDA graph.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from torch import Tensor, nn

WAY = sys.argv[1]
DEVICE = torch.device(sys.argv[2] if len(sys.argv) > 2 else "cuda")
WARM, RUNS, EACH = 30, 15, 20  # the median of RUNS times EACH iterations


def model() -> tuple[nn.Module, Tensor]:
    if WAY == "conv":
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()]
        for _ in range(6):
            layers += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
        return nn.Sequential(*layers).to(DEVICE), torch.randn(64, 3, 64, 64, device=DEVICE)
    layers = [part for _ in range(30) for part in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(64, 10)).to(DEVICE), torch.randn(16, 64, device=DEVICE)


def finished() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    torch.manual_seed(1)
    net, data = model()
    labels = torch.randint(10, (len(data),), device=DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def iteration() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(data), labels).backward()
        optimizer.step()

    step = iteration
    for _ in range(WARM):
        iteration()
    if WAY == "graph":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            iteration()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            nn.functional.cross_entropy(net(data), labels).backward()
            optimizer.step()
        step = graph.replay
    times = []
    for _ in range(RUNS):
        finished()
        begin = time.perf_counter()
        for _ in range(EACH):
            step()
        finished()
        times.append((time.perf_counter() - begin) / EACH * 1e6)
    print(statistics.median(times))


if __name__ == "__main__":
    main()
