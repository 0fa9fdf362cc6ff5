"""The places of a model's storages in its weights' memory: in order of first use, each pipeline group on its own pages.

The header (`native/weights/groups.h`) comes first, then the groups, then the storages that every worker copies for
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from carpool.serve.plan.grouping import Grouping

PAGE = 4096
#: PyTorch's own alignment (on GPUs; on the CPU 64), so that kernels take the same paths as without Carpool.
ALIGNMENT = 512
HEADER_BYTES = 48
STATE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """``offsets``: of each storage, in bytes.  ``bounds``: group k lies from bounds[k] to bounds[k + 1].

    ``size``: bytes of the file, private storages included.
    """

    offsets: tuple[int, ...]
    bounds: tuple[int, ...]
    size: int


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def lay_out(
    sizes: Sequence[int], layers: Sequence[Sequence[int]], private: Sequence[int], grouping: Grouping
) -> Layout:
    """Lay out the storages.

    ``sizes``: bytes of each storage; ``layers``: the storages of each layer, in order; ``private``: the others.  Raises
    ValueError if that does not name every storage once, or if the groups are not all of the layers.
    """
    if sorted([s for layer in layers for s in layer] + list(private)) != list(range(len(sizes))):
        raise ValueError("every storage belongs to one layer, or is private")
    if list(grouping) != sorted(set(grouping)) or not grouping or grouping[0] < 1 or grouping[-1] != len(layers):
        raise ValueError(f"the groups end at {list(grouping)}, and there are {len(layers)} layers")
    offsets = [0] * len(sizes)
    end = _round_up(HEADER_BYTES + STATE_BYTES * len(grouping), PAGE)
    bounds = [end]
    for begin, stop in zip((0, *grouping), grouping, strict=False):
        end = _place([s for layer in layers[begin:stop] for s in layer], sizes, offsets, end)
        bounds.append(end)
    size = _place(private, sizes, offsets, end)
    return Layout(tuple(offsets), tuple(bounds), size)


def _place(storages: Sequence[int], sizes: Sequence[int], offsets: list[int], end: int) -> int:
    for storage in storages:
        offsets[storage] = end
        end = _round_up(end + sizes[storage], ALIGNMENT)
    return _round_up(end, PAGE)
