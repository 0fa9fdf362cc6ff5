"""Real values beside fake tensors with few elements: counters, indices, the order of a data set.

Fake tensors have shapes and no numbers, but set-up code reads some: ``window[start : start + 96]``, a sampler's
permutation, an optimizer's step.  So small integer tensors, and single floats, are computed for real as long as all
their inputs are known.  Values that depend on the model's tensors are not known; a script that reads such a value (a
loss to print) gets a made-up 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

_MOST_INTEGERS = 4 << 20
_MOST_FLOATS = 1
_NAME = "_carpool_value"


class Values:
    """The real values of fake tensors, kept at the tensors themselves as long as all inputs are known."""

    def scalar(self, tensor: torch.Tensor) -> Any:
        """Return what ``tensor.item()`` gives; 1 (False for a truth value) if the number is not known."""
        value = known(tensor)
        if value is not None:
            with _disable_current_modes():
                return value.item()
        if tensor.dtype is torch.bool:
            return False
        return 1.0 if tensor.dtype.is_floating_point or tensor.dtype.is_complex else 1

    def follow(self, func: Any, args: Any, kwargs: Any, made: list[torch.Tensor]) -> None:
        """Do an operation with real values too, if all inputs are known and the results are small."""
        if not made or not all(map(few, made)):
            return
        if any(known(tensor) is None for tensor in tensors_in((args, kwargs))):
            forget(made)
            return
        real_args, real_kwargs = tree_map(_real, (args, kwargs))
        try:
            with _disable_current_modes():
                results = func(*real_args, **real_kwargs)
        except RuntimeError:  # the operation fails for a real tensor of this kind
            forget(made)
            return
        for tensor, value in zip(made, tensors_in(results), strict=False):
            if isinstance(tensor, FakeTensor):
                setattr(tensor, _NAME, value)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in nested containers, in order."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def few(tensor: torch.Tensor) -> bool:
    """Whether a tensor is small enough to be computed for real, and on the CPU."""
    if tensor.device.type != "cpu":
        return False
    return bool(tensor.numel() <= (_MOST_FLOATS if tensor.dtype.is_floating_point else _MOST_INTEGERS))


def known(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor's numbers, as a real tensor; None if they are not known."""
    if not isinstance(tensor, FakeTensor):
        return tensor
    value: torch.Tensor | None = getattr(tensor, _NAME, None)
    return value if value is not None else tensor.constant


def forget(tensors: list[torch.Tensor]) -> None:
    """Forget the numbers of tensors, which depend on unknown values."""
    for tensor in tensors:
        if isinstance(tensor, FakeTensor) and hasattr(tensor, _NAME):
            delattr(tensor, _NAME)


def adopt(tensor: FakeTensor, source: FakeTensor) -> None:
    """Give ``tensor`` the numbers of ``source``, whose data it has from now on."""
    forget([tensor])
    tensor.constant = source.constant
    if hasattr(source, _NAME):
        setattr(tensor, _NAME, getattr(source, _NAME))


def in_words(tensor: FakeTensor, how: str) -> str:
    """Format ``f"{tensor:how}"``: a single number as real tensors show it."""
    if tensor.dim() or tensor.device.type == "meta":
        return object.__format__(tensor, how)
    return format(tensor.item(), how)


def tell(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Set the numbers of a small fake tensor."""
    if isinstance(tensor, FakeTensor) and few(tensor):
        setattr(tensor, _NAME, value)


def presume(tensor: torch.Tensor, truth: bool) -> None:
    """Set truth values that are not known to ``truth``."""
    if known(tensor) is None:
        with _disable_current_modes():
            tell(tensor, torch.full(tuple(tensor.shape), truth))


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a real tensor of the same shape: with the known numbers, or with ones."""
    with _disable_current_modes():
        value = known(tensor)
        return torch.ones(tuple(tensor.shape), dtype=tensor.dtype) if value is None else value.detach().clone()


def _real(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return known(leaf)
    return leaf
