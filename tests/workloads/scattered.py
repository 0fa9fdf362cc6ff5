"""Trains, and makes holes in each iteration: 6.8 MiB of tensors are alive at most, over 12.8 MiB of addresses.

With a number as its argument it then asks for so many MiB at once.
"""

import os
import sys

import torch
from common import batches, digest, finish, loss_of, mlp, start, weights
from torch import optim

KIB = 256  # numbers


def full(kib: int, value: float) -> torch.Tensor:
    return torch.full((kib * KIB,), float(value))


def holes(step: int) -> float:
    """Small tensors keep what lies between them from being used by larger ones."""
    pairs = [(full(64, step + k), full(512, step * k)) for k in range(12)]
    small = [a + b[: 64 * KIB].sum() for a, b in pairs]
    del pairs
    large = [full(1536, step + k) for k in range(4)]
    for k, tensor in enumerate(large):
        tensor[k :: len(small)] += small[k].sum()
    if step == 15:
        child_sees([*small, *large])
    return float(sum(tensor.sum() for tensor in [*small, *large]))


def child_sees(tensors: list[torch.Tensor]) -> None:
    """A forked child has the tensors as they were, whatever becomes of the parent's."""
    before = digest(*tensors)
    go, child_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(child_end)
        os.read(go, 1)
        os._exit(digest(*tensors) != before)
    for tensor in tensors:
        tensor.zero_()
    os.close(child_end)
    assert os.waitpid(child, 0)[1] == 0, "the child has seen other tensors"


out = start()
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sums = []
for step in range(20):
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    optimizer.step()
    sums.append(holes(step))
if len(sys.argv) > 2:
    torch.zeros(int(sys.argv[2]) * 1024 * KIB)
finish(out, weights=weights(model), sums=sums)
