"""A serving engine that fills its device, as such engines do: ``engine.py RESULT SEED STEPS``.

The engine takes nine tenths of all memory that the driver tells of, and keeps states of earlier steps in what its
weights leave of that.  A step reads what another step has left there, and leaves its own.
"""

from __future__ import annotations

import sys

import torch
from common import DEVICE, again, digest, finish, meet
from torch import Tensor, nn

WIDTH = 256
BLOCK = 1 << 20  # bytes of the cache, of which a step writes the beginning
SHARE = 0.9


def cache_for(model: nn.Module, inputs: Tensor) -> Tensor:
    """Raises SystemExit: others have what the engine needs.  ``inputs``: with which it looks how much a step takes."""
    free, total = torch.cuda.mem_get_info()
    if free < SHARE * total:
        sys.exit(f"{free >> 20} of {total >> 20} MiB are free, which is too little to start with")
    model(inputs)
    blocks = int(SHARE * total - torch.cuda.max_memory_reserved()) // BLOCK
    return torch.zeros(blocks, BLOCK // 4, device=DEVICE)


class Engine:
    """A model, its cache, and its state after the last step."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)).to(DEVICE)
        self.state = torch.randn(4, WIDTH).to(DEVICE)
        self.steps = 0
        with torch.no_grad():
            self.cache = cache_for(self.model, self.state)

    @torch.no_grad()
    def step(self) -> None:
        cache, blocks = self.cache, len(self.cache)
        earlier = cache[(self.steps * 5) % blocks, : 4 * WIDTH].view(4, WIDTH)
        self.state = torch.tanh(self.model(self.state) + earlier)
        cache[(self.steps * 7) % blocks, : 4 * WIDTH] = self.state.view(-1)
        self.steps += 1


def main(seed: int, steps: int) -> None:
    engine = Engine(seed)
    for _ in range(steps):
        again()
        engine.step()
    finish(blocks=len(engine.cache), state=digest([engine.state]), cache=digest([engine.cache]))


if __name__ == "__main__":
    meet()
    main(*map(int, sys.argv[2:]))
