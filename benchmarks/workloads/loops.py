"""The usual training loops, by how much they leave alive between iterations: ``loops.py MANNER ITERATIONS [--trough]``.

With ``--trough`` PyTorch's own profiler, not Carpool, says how many bytes the loop has alive at its emptiest point,
beyond what it keeps for good.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

MANNERS = ("after", "before", "keep", "ema", "lbfgs")
SETTLED = 10  # iterations after which EMA and history have reached their size


class Loop:
    """One model, one manner of zeroing gradients or keeping things."""

    def __init__(self, manner: str) -> None:
        torch.manual_seed(0)
        self.manner = manner
        width = 256 if manner == "lbfgs" else 640
        self.model = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 10),
        )  # fmt: skip
        self.data = [(torch.randn(512, 64), torch.randint(0, 10, (512,))) for _ in range(4)]
        self.optimizer: torch.optim.Optimizer
        if manner == "lbfgs":
            self.optimizer = torch.optim.LBFGS(self.model.parameters(), lr=0.1, max_iter=2, history_size=4)
        else:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.average: nn.Module | None = None
        self.loss = torch.zeros(())

    def kept(self) -> int:
        """Bytes that the loop keeps for good: parameters, optimizer state, data, averages."""
        modules = [self.model, *([self.average] if self.average is not None else [])]
        tensors = [tensor for module in modules for tensor in module.state_dict().values()]
        tensors += [tensor for pair in self.data for tensor in pair]
        tensors += list(_tensors(list(self.optimizer.state.values())))
        return sum(size for _, size in {tensor.data_ptr(): _size(tensor) for tensor in tensors}.items())

    def iterate(self, step: int) -> None:
        inputs, labels = self.data[step % len(self.data)]
        if self.manner in ("before", "ema"):
            self.optimizer.zero_grad()
        elif self.manner == "keep":
            self.optimizer.zero_grad(set_to_none=False)
        if self.manner == "lbfgs":
            self.loss = self.optimizer.step(self._closure(inputs, labels))
            return
        self.loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.loss.backward()
        self.optimizer.step()
        if self.manner == "after":
            self.optimizer.zero_grad()
        if self.manner == "ema":
            self._average()

    def _closure(self, inputs: torch.Tensor, labels: torch.Tensor) -> Callable[[], torch.Tensor]:
        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(inputs), labels)
            loss.backward()
            return loss

        return closure

    @torch.no_grad()
    def _average(self) -> None:
        """A new copy of the weights in every iteration, as functional implementations make it."""
        if self.average is None:
            self.average = copy.deepcopy(self.model)
            return
        for mean, now in zip(self.average.parameters(), self.model.parameters(), strict=True):
            mean.data = mean.data * 0.9 + now.data * 0.1


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for child in children for tensor in _tensors(child)]


def _size(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def trough(manner: str, iterations: int) -> int:
    """The fewest bytes alive in one iteration, beyond those kept for good."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loop = Loop(manner)
        for step in range(iterations):
            with torch.profiler.record_function(f"iteration {step}"):
                loop.iterate(step)
        kept = loop.kept()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    begin = next(event["ts"] for event in events if event.get("name") == f"iteration {iterations - 2}")
    memory = [e for e in events if e.get("name") == "[memory]" and e["args"]["Device Type"] == 0 and e["ts"] >= begin]
    return int(min(event["args"]["Total Allocated"] for event in memory)) - kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("manner", choices=MANNERS)
    parser.add_argument("iterations", type=int)
    parser.add_argument("--trough", action="store_true")
    options = parser.parse_args()
    if options.trough:
        print(json.dumps({"trough_bytes": trough(options.manner, SETTLED + 4)}))
        return
    loop = Loop(options.manner)
    for step in range(options.iterations):
        loop.iterate(step)
    print(json.dumps({"loss": float(loop.loss)}))


if __name__ == "__main__":
    main()
