"""A tensor on the device is passed to another process, which changes its contents: ``passed.py RESULT ROUNDS``."""

from __future__ import annotations

import sys

import torch
from common import DEVICE, finish, meet
from torch import Tensor, multiprocessing

WORDS = 1 << 18


def double(given: multiprocessing.Queue[Tensor | None], done: multiprocessing.Queue[int]) -> None:
    while (tensor := given.get()) is not None:
        tensor.mul_(2)
        torch.cuda.synchronize()
        del tensor
        done.put(1)


def main(rounds: int) -> None:
    context = multiprocessing.get_context("spawn")
    given, done = context.Queue(), context.Queue()
    other = context.Process(target=double, args=(given, done), daemon=True)
    other.start()
    tensor = torch.arange(WORDS, dtype=torch.int64, device=DEVICE)
    tensor.untyped_storage()._share_cuda_()  # here an error is seen; the queue's thread only prints its own
    for _ in range(rounds):
        given.put(tensor)
        done.get(timeout=120)
    given.put(None)
    other.join()
    right = torch.equal(tensor.cpu(), torch.arange(WORDS, dtype=torch.int64) << rounds)
    finish(right=right, ended=other.exitcode)


if __name__ == "__main__":
    meet()
    main(int(sys.argv[2]))
