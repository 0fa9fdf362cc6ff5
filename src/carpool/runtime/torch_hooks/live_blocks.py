"""The device memory that PyTorch has given out, which must survive the end of a turn.

The segments of PyTorch's caching allocator come from libcarpool; only the allocator knows which parts of them hold
tensors.  libcarpool asks for these parts only when a turn really ends, so this costs nothing otherwise.

Not yet run on a GPU.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Any

from ..native import Native

#: Passed instead of a number of blocks if the blocks are not known: everything may be in use.
UNKNOWN = 2**64 - 1
#: The pool id of segments that belong to no private pool.
SHARED_POOL = (0, 0)


def hand_over(library: Native) -> None:
    """Tell libcarpool, which waits, the blocks in use.  Never raises: on any error the blocks count as unknown."""
    try:
        addresses, sizes = collect(_segments())
    except Exception:  # noqa: BLE001 - the user's program goes on in any case
        library.live_blocks(None, None, UNKNOWN)
        return
    library.live_blocks(addresses.buffer_info()[0], sizes.buffer_info()[0], len(addresses))


def collect(segments: Iterable[dict[str, Any]]) -> tuple[array[int], array[int]]:
    """Return addresses and sizes of what is in use, from the result of ``torch.cuda.memory_snapshot``.

    Each segment has an empty entry first, so that libcarpool can tell a segment without blocks in use from one that the
    allocator does not know.  Private pools count as fully in use: a replayed graph uses blocks that the allocator takes
    for free.
    """
    addresses, sizes = array("Q"), array("Q")
    for segment in segments:
        address = segment["address"]
        addresses.append(address)
        sizes.append(0)
        if segment["segment_pool_id"] != SHARED_POOL:
            addresses.append(address)
            sizes.append(segment["total_size"])
            continue
        for block in segment["blocks"]:
            size = block["size"]
            if block["state"] != "inactive":  # includes blocks that the script has freed, but its streams still use
                addresses.append(block.get("address", address))
                sizes.append(size)
            address += size
    return addresses, sizes


def _segments() -> list[dict[str, Any]]:
    """Return PyTorch's segments.  Raises LookupError while PyTorch has no device memory."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        raise LookupError("PyTorch does not use CUDA")
    try:
        segments: list[dict[str, Any]] = cuda.memory_snapshot(include_traces=False)
    except TypeError:  # older versions lack this argument
        segments = cuda.memory_snapshot()
    return segments
