"""More memory than the device has is asked for, and training goes on: ``exhausted.py RESULT STEPS``."""

from __future__ import annotations

import sys

import torch
from common import DEVICE, again, digest, finish, meet
from torch import nn


def too_much() -> bool:
    total = torch.cuda.get_device_properties(DEVICE).total_memory
    try:
        torch.empty(total, dtype=torch.int32, device=DEVICE)
    except torch.OutOfMemoryError as error:
        return "out of memory" in str(error)
    return False


def main(steps: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(512, 512).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False, fused=False)
    refused = 0
    for number in range(steps):
        again()
        refused += number % 5 == 4 and (DEVICE.type == "cpu" or too_much())
        optimizer.zero_grad()
        model(torch.ones(16, 512, device=DEVICE)).square().mean().backward()
        optimizer.step()
    finish(refused=refused, weights=digest(model.state_dict().values()))


if __name__ == "__main__":
    meet()
    main(int(sys.argv[2]))
