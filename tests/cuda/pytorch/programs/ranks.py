"""Data-parallel training in two processes on two devices, by gloo: ``ranks.py RESULT STEPS``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from common import DEVICE, digest, finish, meet
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

RANKS = 2


def train(rank: int, directory: str, steps: int) -> None:
    distributed.init_process_group("gloo", f"file://{directory}/meet", rank=rank, world_size=RANKS)
    device = torch.device(DEVICE.type, rank if DEVICE.type == "cuda" else None)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)
    inputs = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 32, generator=inputs).to(device)).square().mean().backward()
        optimizer.step()
    (Path(directory) / f"rank{rank}").write_text(digest(model.state_dict().values()))
    distributed.destroy_process_group()


if __name__ == "__main__":
    meet()
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(train, (directory, int(sys.argv[2])), RANKS)
        finish(weights=[(Path(directory) / f"rank{rank}").read_text() for rank in range(RANKS)])
