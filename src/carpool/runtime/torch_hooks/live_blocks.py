"""Which device memory PyTorch has given out: what has to survive the end of a turn.

The segments of PyTorch's caching allocator come from libcarpool; which parts of them hold tensors only the allocator
knows.  libcarpool asks for it where a turn really ends, so it costs nothing otherwise.

Not yet run on a GPU.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Any

from ..native import Native

#: Instead of a number of blocks: the blocks are not known, everything may be in use.
UNKNOWN = 2**64 - 1
#: Segments that belong to no private pool.
SHARED_POOL = (0, 0)


def hand_over(library: Native) -> None:
    """Tell libcarpool, which waits for it.  Never raises: if anything is not as expected, nothing is known."""
    try:
        addresses, sizes = collect(_segments())
    except Exception:  # noqa: BLE001 - the user's program goes on in any case
        library.live_blocks(None, None, UNKNOWN)
        return
    library.live_blocks(addresses.buffer_info()[0], sizes.buffer_info()[0], len(addresses))


def collect(segments: Iterable[dict[str, Any]]) -> tuple[array[int], array[int]]:
    """Addresses and sizes of what is in use, from what ``torch.cuda.memory_snapshot`` returns.

    Each segment has an empty entry first, so that libcarpool can tell one in which nothing is in use from one that the
    allocator does not know.  Private pools count as in use altogether: a replayed graph uses blocks that the allocator
    takes for free.
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
            if block["state"] != "inactive":  # also what is free for the script, but not yet for its streams
                addresses.append(block.get("address", address))
                sizes.append(size)
            address += size
    return addresses, sizes


def _segments() -> list[dict[str, Any]]:
    """Raises LookupError while PyTorch has no device memory."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        raise LookupError("PyTorch does not use CUDA")
    try:
        segments: list[dict[str, Any]] = cuda.memory_snapshot(include_traces=False)
    except TypeError:  # older versions know no such argument
        segments = cuda.memory_snapshot()
    return segments
