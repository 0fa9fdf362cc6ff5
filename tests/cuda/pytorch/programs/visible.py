"""Counts devices after it has written into CUDA_VISIBLE_DEVICES: ``visible.py RESULT VALUES...``.

The first value is written before PyTorch is imported, each of the others in a child that is forked afterwards.  EMPTY
is an empty value, DELETED deletes the variable.
"""

from __future__ import annotations

import multiprocessing
import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[2].replace("EMPTY", "")

import torch
from common import DEVICE, finish


def counts() -> list[int]:
    """What says how many devices there are, in the order in which a script asks: before the first use, and after it."""
    before = torch.cuda.device_count()
    assert torch.cuda.is_available() == (before > 0)
    return [
        before,
        torch.cuda.device_count(),
        torch.accelerator.device_count(),
        used(before),
        torch.cuda.device_count(),
    ]


def used(count: int) -> int:
    """How many devices of so many hold what is copied to them."""
    given, right = torch.arange(64, dtype=torch.float32).reshape(8, 8), 0
    for index in range(count):
        with torch.cuda.device(index):
            right += torch.equal(given.cuda().cpu(), given)
    net = torch.nn.DataParallel(torch.nn.Linear(8, 2), device_ids=[*range(count)])
    assert count > 1 or net.to(DEVICE if count else "cpu")(given).shape == (8, 2)  # several need NCCL
    return right


def in_child(value: str, answers: multiprocessing.SimpleQueue[list[int]]) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = value.replace("EMPTY", "")
    if value == "DELETED":
        del os.environ["CUDA_VISIBLE_DEVICES"]
    answers.put(counts())


def forked(value: str) -> list[int]:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=in_child, args=(value, answers))
    child.start()
    child.join()
    assert child.exitcode == 0, value
    return answers.get()


if __name__ == "__main__":
    before = torch.cuda.device_count()
    others = {value: forked(value) for value in sys.argv[3:]}
    finish(first=[before, *counts()], **others)
