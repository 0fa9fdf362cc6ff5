"""Computing on a GPU while weights are still being copied there.

On a host device an access to missing weights waits by itself.  On a GPU nothing waits, so each operation is submitted
after an event of the last group that it needs.  That group follows from the addresses of the operation's tensors, in
whatever order the model uses them.

Not yet run on a GPU.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from carpool.serve.model.native_groups import Groups


class Following(TorchDispatchMode):  # type: ignore[misc]
    """A mode in which each operation of this thread is submitted after the groups that contain its tensors.

    Work that reaches the GPU in another way, by a kernel's own launch or from another thread, waits for all groups at
    the gate.  ``stream``: the handle of the stream that operations are submitted to.  Operations raise CopyStopped and
    OSError as `Groups.follow` does.
    """

    supports_higher_order_operators = True

    def __init__(self, groups: Groups, stream: Callable[[], int]) -> None:
        super().__init__()
        self._groups = groups
        self._stream = stream
        self._followed: dict[int, int] = {}  # number of groups, by stream

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False; else the first request that finds weights missing would import PyTorch's compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if count := self._needed(func, (*args, *kwargs.values())):
            stream = self._stream()
            if count > self._followed.get(stream, 0):
                self._groups.follow(count, stream)
                self._followed[stream] = count
        self._groups.operation(begins=True)
        try:
            return func(*args, **kwargs)
        finally:
            self._groups.operation(begins=False)

    def __enter__(self) -> Self:
        self._groups.guard(on=True)
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._groups.guard(on=False)

    def _needed(self, func: Any, values: Iterable[Any]) -> int:
        """Return how many groups must be there."""
        if not isinstance(func, OpOverload):  # a higher-order operator: the functions in it use unknown tensors
            return self._groups.count
        return max(map(self._count, _tensors(values)), default=0)

    def _count(self, tensor: Tensor) -> int:
        """Return how many groups a tensor needs; its storage lies in one group, and 0 means it is no weight."""
        if tensor.layout is not torch.strided:  # made from strided tensors by an operation that followed their groups
            return 0
        bounds = self._groups.bounds
        offset = tensor.untyped_storage().data_ptr() - self._groups.address
        return bisect_right(bounds, offset) if offset < bounds[-1] else 0


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        leaves = tree_leaves(value) if isinstance(value, (list, tuple, dict)) else (value,)  # tree_leaves is slow
        yield from (leaf for leaf in leaves if isinstance(leaf, Tensor))
