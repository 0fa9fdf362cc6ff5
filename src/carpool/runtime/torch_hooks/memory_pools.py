"""Allocation to pools of the program's own: a `torch.cuda.MemPool`, the warm-up and capture of graph trees.

When PyTorch's allocator is refused memory there, it does not free its cache and try again as it does otherwise: the
script gets an exception at once.  So libcarpool must know.

Not yet run on a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

#: PyTorch's own functions, of versions 2.6 to 2.13.
_BEGIN = (
    "_cuda_beginAllocateToPool",
    "_cuda_beginAllocateCurrentStreamToPool",
    "_cuda_beginAllocateCurrentThreadToPool",
)
_END = ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool")


def watch(count: Callable[[int], None]) -> None:
    """Call ``count`` with 1 where such a scope has begun and with -1 where it has ended.  No effect without CUDA."""
    import torch

    if torch.version.cuda is None:
        return
    for names, change in ((_BEGIN, 1), (_END, -1)):
        for name in names:
            for home in (torch.cuda.memory, torch._C):  # torch.cuda.memory imports the names from torch._C
                original: Any = getattr(home, name, None)
                if original is not None:
                    setattr(home, name, _counting(original, count, change))


def _counting(original: Callable[..., Any], count: Callable[[int], None], change: int) -> Callable[..., Any]:
    @functools.wraps(original)
    def counting(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        count(change)
        return result

    counting._torchdynamo_disable = True  # type: ignore[attr-defined]
    return counting
