"""An engine with a sleep mode, on an allocator of its own: ``sleeper.py RESULT SEED STEPS``.

Weights and cache lie in memory that the engine makes itself (``SLEEPING_ALLOCATOR``).  In the middle the engine copies
its weights to the host, gives all of that memory back, makes it again at the same addresses, and computes on.
"""

from __future__ import annotations

import ctypes
import os
import sys

import torch
from common import DEVICE, again, digest, finish, meet
from torch import nn

WIDTH = 512
CACHE = 16 << 20  # bytes
LIBRARY = os.environ["SLEEPING_ALLOCATOR"]


@torch.no_grad()
def main(seed: int, steps: int) -> None:
    torch.manual_seed(seed)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(LIBRARY, "sleeping_alloc", "sleeping_free")
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))).to(DEVICE)
        cache = torch.zeros(CACHE // 4, device=DEVICE)
    state = torch.randn(4, WIDTH).to(DEVICE)
    for step in range(steps):
        again()
        state = torch.tanh(model(state) + cache[: 4 * WIDTH].view(4, WIDTH))
        cache[step * WIDTH : (step + 4) * WIDTH] = state.view(-1)
        if step == steps // 2:
            sleep(model, cache)
    weights = list(model.parameters())
    finish(state=digest([state]), cache=digest([cache]), weights=digest(weights))


def sleep(model: nn.Module, cache: torch.Tensor) -> None:
    engine, saved = ctypes.CDLL(LIBRARY), [weight.cpu() for weight in model.parameters()]
    torch.cuda.synchronize()
    assert engine.fall_asleep() == 0
    again()
    assert engine.wake_up() == 0
    for weight, content in zip(model.parameters(), saved, strict=True):
        weight.copy_(content)
    cache.zero_()


if __name__ == "__main__":
    meet()
    main(*map(int, sys.argv[2:]))
