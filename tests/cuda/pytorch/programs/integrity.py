"""Memory whose contents are known comes and goes; all of it is checked: ``integrity.py RESULT SEED STEPS MIB [POOLS]``.

Tensors live on over iterations, in the default stream and in a side stream, come from pinned memory, are freed for
other streams (`record_stream`); CUDA graphs have private pools; the cache is emptied at times.  Losses alone
do not show lost memory: what is compared is every tensor.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field

import torch
from common import DEVICE, again, finish, meet
from torch import Tensor

MOST = 40  # tensors at once
WORDS = 1 << 18  # of a MiB


@dataclass
class Contents:
    """Tensors on the device, with where their contents stand in ``master``."""

    master: Tensor
    rng: random.Random
    live: list[tuple[Tensor, int]] = field(default_factory=list)
    wrong: int = 0
    checked: int = 0

    def check(self, tensor: Tensor, begin: int) -> None:
        self.checked += 1
        self.wrong += not torch.equal(tensor.cpu(), self.master[begin : begin + tensor.numel()])

    def add(self, stream: torch.cuda.Stream, pinned: Tensor) -> None:
        size = self.rng.randint(1, 1 << self.rng.randint(4, 18))
        begin = self.rng.randint(0, self.master.numel() - size)
        wanted = self.master[begin : begin + size]
        through = self.rng.random() < 0.5 and size <= pinned.numel()
        self.live.append((self._through(stream, pinned, wanted) if through else wanted.to(DEVICE), begin))

    def _through(self, stream: torch.cuda.Stream, pinned: Tensor, wanted: Tensor) -> Tensor:
        """By pinned memory and a copy in a side stream."""
        stream.synchronize()
        source = pinned[: wanted.numel()].copy_(wanted)
        with torch.cuda.stream(stream):
            first = source.to(DEVICE, non_blocking=True)
            second = first.clone()
        torch.cuda.current_stream().wait_stream(stream)
        for each in (first, second):
            each.record_stream(torch.cuda.current_stream())
        return second

    def step(self, stream: torch.cuda.Stream, pinned: Tensor) -> None:
        for _ in range(self.rng.randint(1, 4)):
            kind = self.rng.random()
            if kind < 0.4 or not self.live:
                self.add(stream, pinned)
            elif kind < 0.7:
                self.check(*self.rng.choice(self.live))
            else:
                self.live.pop(self.rng.randrange(len(self.live)))
        del self.live[MOST:]


class Pool:
    """A graph whose results live in its private pool."""

    def __init__(self) -> None:
        self._graph, self._given = torch.cuda.CUDAGraph(), torch.zeros(WORDS, dtype=torch.int32, device=DEVICE)
        with torch.cuda.graph(self._graph):
            self._captured = self._given.clone()

    def step(self, contents: Contents) -> None:
        begin = contents.rng.randrange(contents.master.numel() - WORDS)
        self._given.copy_(contents.master[begin : begin + WORDS])
        self._graph.replay()
        contents.check(self._captured, begin)


def main(seed: int, steps: int, size: int, pools: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    master = torch.randint(0, 1 << 31, (size * WORDS,), dtype=torch.int32, generator=generator)
    contents = Contents(master, random.Random(seed))
    always = [(master.roll(number).to(DEVICE), number) for number in range(3)]
    stream, pinned = torch.cuda.Stream(), torch.empty(WORDS, dtype=torch.int32).pin_memory()
    layer = torch.nn.Linear(512, 512, device=DEVICE)
    optimizer = torch.optim.AdamW(layer.parameters())
    graphs = [Pool() for _ in range(pools)]
    for number in range(steps):
        again()
        contents.step(stream, pinned)
        for graph in graphs:
            graph.step(contents)
        optimizer.zero_grad()
        layer(torch.zeros(8, 512, device=DEVICE)).sum().backward()
        optimizer.step()
        if number % 25 == 24:
            torch.cuda.empty_cache()
    for tensor, begin in contents.live:
        contents.check(tensor, begin)
    moved = sum(not torch.equal(tensor.cpu(), master.roll(number)) for tensor, number in always)
    finish(wrong=contents.wrong + moved, checked=contents.checked > steps // 2)


if __name__ == "__main__":
    meet()
    main(*map(int, sys.argv[2:]))
