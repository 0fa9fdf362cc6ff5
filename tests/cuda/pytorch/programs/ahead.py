"""A queue of work that is long when an iteration ends: ``ahead.py RESULT SEED STEPS``.

With EMULATOR_RESULTS=0 and EMULATOR_KERNEL_US kernels take time and compute nothing, so nobody waits for results.
Copies do their work behind these kernels, in the same stream: each iteration's is checked one iteration later.
"""

from __future__ import annotations

import sys

import torch
from common import DEVICE, again, finish, meet
from torch import Tensor

WORDS = 1 << 18  # of a MiB
KERNELS = 20


def queue_kernels(values: Tensor) -> None:
    for _ in range(KERNELS):
        values.add_(1)


def main(seed: int, steps: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sources = [torch.randint(0, 1 << 31, (WORDS,), dtype=torch.int32, generator=generator).pin_memory() for _ in "ab"]
    back = [torch.zeros_like(source).pin_memory() for source in sources]
    ended = [torch.cuda.Event() for _ in sources]
    layer = torch.nn.Linear(64, 64, device=DEVICE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scratch, wrong, ahead = torch.zeros(64, device=DEVICE), 0, 0
    for number in range(steps):
        again()
        this, last = number % 2, (number + 1) % 2
        queue_kernels(scratch)
        there = sources[this].to(DEVICE, non_blocking=True)
        queue_kernels(scratch)
        back[this].copy_(there.clone(), non_blocking=True)
        ended[this].record()
        optimizer.zero_grad()
        layer(torch.ones(4, 64, device=DEVICE)).sum().backward()
        optimizer.step()  # a turn may end here
        ahead += not ended[this].query()
        if number:
            ended[last].synchronize()
            wrong += not torch.equal(back[last], sources[last])
            back[last].zero_()
    finish(wrong=wrong, checked=ahead > steps // 2)


if __name__ == "__main__":
    meet()
    main(*map(int, sys.argv[2:]))
