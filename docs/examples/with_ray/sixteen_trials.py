"""Sixteen trials of Ray Tune on one device: all at once by Carpool, and one after another as a queue has it.

Each way starts Ray anew on this machine.  Both must find the same losses, to the last bit.  Before: carpool up.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from typing import Any

import carpool.ray

#: What trials of both ways compute with: the order of sums depends on it.
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def train(config: dict[str, Any]) -> dict[str, Any]:
    """One trial: plain PyTorch.  It reads a batch, which takes a while, and computes, in turn."""
    import time

    import torch
    from torch import nn

    torch.manual_seed(0)
    inputs, classes = torch.randn(4096, 64), torch.randint(0, 10, (4096,))
    model = nn.Sequential(nn.Linear(64, config["width"]), nn.ReLU(), nn.Linear(config["width"], 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    for step in range(config["iterations"]):
        time.sleep(config["read_s"])
        rows = torch.arange(step * 512, step * 512 + 512) % len(inputs)
        loss = nn.functional.cross_entropy(model(inputs[rows]), classes[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"loss": loss.item()}


def tuned(space: dict[str, Any], resources: dict[str, float], directory: str) -> list[float]:
    """The last loss of each trial, in the order of the space.  Raises RuntimeError if a trial has failed."""
    from ray import tune

    trainable = tune.with_resources(train, tune.PlacementGroupFactory([{"CPU": 0.01, **resources}]))
    run = tune.RunConfig(storage_path=directory, name="trials", verbose=0)
    results = tune.Tuner(trainable, param_space=space, run_config=run).fit()
    if results.errors:
        raise RuntimeError(f"{len(results.errors)} trials have failed; the first: {results.errors[0]}")
    return [result.metrics["loss"] for result in results if result.metrics is not None]


def measured(space: dict[str, Any], *, shared: bool) -> tuple[float, list[float]]:
    """Seconds from the first trial's start to the last one's end, and the losses."""
    import ray

    name = carpool.ray.RESOURCE if shared else "device"
    resources = carpool.ray.prepare_node(shares=16) if shared else {name: 1.0}
    others = {"env_vars": THREADS}
    environment = carpool.ray.runtime_env(others) if shared else others
    with tempfile.TemporaryDirectory(prefix="trials-") as directory:
        ray.init("local", resources=resources, runtime_env=environment, include_dashboard=False, log_to_driver=False)
        began = time.monotonic()
        losses = tuned(space, {name: 1.0}, directory)
        seconds = time.monotonic() - began
        ray.shutdown()
    return seconds, losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=200, help="of each trial (default: %(default)s)")
    parser.add_argument("--read-ms", type=float, default=10.0, help="until a batch is there (default: %(default)s)")
    options = parser.parse_args()
    from ray import tune

    rates = [10 ** (-1 - 0.2 * number) for number in range(options.trials)]
    space = {"lr": tune.grid_search(rates), "width": 512, "iterations": options.iterations}
    space["read_s"] = options.read_ms / 1000
    shared_s, shared = measured(space, shared=True)
    queue_s, queue = measured(space, shared=False)
    ratio = round(shared_s / queue_s, 2)
    about = {"trials": len(shared), "same_losses": shared == queue and len(shared) == options.trials}
    print(json.dumps({**about, "shared_s": round(shared_s, 1), "queue_s": round(queue_s, 1), "ratio": ratio}))


if __name__ == "__main__":
    main()
