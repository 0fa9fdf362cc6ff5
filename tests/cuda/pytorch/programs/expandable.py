"""Turns expandable segments on, and then grows: ``expandable.py RESULT MOMENT WAY SETTINGS``.

MOMENT is ``before`` or ``after`` the first use of the device, WAY a key of `WAYS`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import growing
import torch
from common import DEVICE

MIB = 280


def by_native_call(settings: str) -> None:
    """Of PyTorch 2.6, and of later versions."""
    names = ("_cuda_cudaCachingAllocator_set_allocator_settings", "_accelerator_setAllocatorSettings")
    for call in [getattr(torch._C, name) for name in names if hasattr(torch._C, name)]:
        call(settings)


WAYS: dict[str, Callable[[str], None]] = {
    "call": lambda settings: torch.cuda.memory._set_allocator_settings(settings),
    "native": by_native_call,
    "environment": lambda settings: os.environ.update(PYTORCH_CUDA_ALLOC_CONF=settings),
}

if __name__ == "__main__":
    moment, way, settings = sys.argv[2:]
    if moment == "after":
        torch.zeros(1, device=DEVICE)
    WAYS[way](settings)
    growing.main(MIB, MIB - growing.PIECE)
