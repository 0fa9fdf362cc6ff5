"""Computing on a GPU while weights are still on their way there.

On a host device a touch of what is not there waits by itself.  On a GPU nothing does, so each operation is submitted
after an event of the last group that it needs.  Which one that is follows from the addresses of its tensors, whatever
the model does in whatever order.

Not yet run on a GPU.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from carpool.serve.model.native_groups import Groups


class Following(TorchDispatchMode):  # type: ignore[misc]
    """Inside of it, whatever PyTorch dispatches in this thread comes after the groups that its tensors lie in.

    What reaches the GPU in another way, a kernel's own launch or another thread's, waits for all groups at the gate.
    ``stream``: the handle of the one that operations are submitted to.  Operations raise Stopped and OSError as
    `Groups.follow` does.
    """

    supports_higher_order_operators = True

    def __init__(self, groups: Groups, stream: Callable[[], int]) -> None:
        super().__init__()
        self._groups = groups
        self._stream = stream
        self._followed: dict[int, int] = {}  # groups, by stream

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise the first request that finds its weights missing would have to import PyTorch's compiler."""
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
        """How many groups have to be there."""
        if not isinstance(func, OpOverload):  # functions run in it, with tensors that it does not say
            return self._groups.count
        return max(map(self._count, _tensors(values)), default=0)

    def _count(self, tensor: Tensor) -> int:
        """A storage lies in one group; 0: it is no weight."""
        if tensor.layout is not torch.strided:  # made of strided ones, by an operation that has followed them
            return 0
        bounds = self._groups.bounds
        offset = tensor.untyped_storage().data_ptr() - self._groups.address
        return bisect_right(bounds, offset) if offset < bounds[-1] else 0


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        leaves = tree_leaves(value) if isinstance(value, (list, tuple, dict)) else (value,)  # it is slow
        yield from (leaf for leaf in leaves if isinstance(leaf, Tensor))


def is_opaque(module: nn.Module) -> bool:
    """Whether it was compiled or scripted, in parts at least: no mode sees what kernels of such code are given."""
    return any(
        isinstance(part, torch.jit.ScriptModule)
        or part._compiled_call_impl is not None  # by Module.compile
        or "_orig_mod" in part._modules  # by torch.compile
        for part in module.modules()
    )
