"""What libcarpool hears of the device memory that PyTorch has given out.

There is no GPU here: the snapshots have the shape that the documentation and the sources of PyTorch describe.
"""

from __future__ import annotations

import itertools
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from carpool.runtime.torch_hooks import live_blocks


def segment(
    address: int, *blocks: tuple[int, str], pool: tuple[int, int] = (0, 0), named: bool = True
) -> dict[str, Any]:
    """As `torch.cuda.memory_snapshot` returns it; ``named``: its blocks have addresses, as in newer versions."""
    places = itertools.accumulate([0, *(size for size, _ in blocks)])
    return {
        "device": 0,
        "address": address,
        "total_size": sum(size for size, _ in blocks),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": pool,
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {"size": size, "requested_size": size, "state": state, "frames": []}
            | ({"address": address + place} if named else {})
            for place, (size, state) in zip(places, blocks, strict=False)
        ],
    }


class Library:
    """Stands in for libcarpool: what it has been told."""

    def __init__(self) -> None:
        self.told: list[tuple[bool, bool, int]] = []

    def live_blocks(self, addresses: int | None, sizes: int | None, count: int) -> None:
        self.told.append((addresses is None, sizes is None, count))


NOTHING_KNOWN = [(True, True, live_blocks.UNKNOWN)]


def told(monkeypatch: pytest.MonkeyPatch, torch: object) -> list[tuple[bool, bool, int]]:
    monkeypatch.setitem(sys.modules, "torch", torch)
    library = Library()
    live_blocks.hand_over(library)  # type: ignore[arg-type]
    return library.told


def fake_torch(snapshot: object, *, initialized: bool = True) -> object:
    return SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: initialized, memory_snapshot=snapshot))


@pytest.mark.parametrize("named", [True, False])
def test_blocks_in_use_are_told_with_their_addresses(named: bool) -> None:
    states = ["active_allocated", "inactive", "active_awaiting_free", "active_pending_free", "inactive"]
    addresses, sizes = live_blocks.collect(
        [
            segment(1000, *((512, state) for state in states), named=named),
            segment(9000, (100, "inactive"), (50, "active_allocated"), named=named),
        ]
    )
    first, second = [(1000, 0), (1000, 512), (2024, 512), (2536, 512)], [(9000, 0), (9100, 50)]
    assert list(zip(addresses, sizes, strict=True)) == first + second


def test_a_segment_in_which_nothing_is_in_use_is_known() -> None:
    addresses, sizes = live_blocks.collect([segment(1000, (512, "inactive"))])
    assert (list(addresses), list(sizes)) == ([1000], [0])


def test_private_pools_count_whole() -> None:
    graph = segment(4096, (512, "active_allocated"), (1536, "inactive"), pool=(0, 3))
    addresses, sizes = live_blocks.collect([graph])
    assert (list(addresses), list(sizes)) == ([4096, 4096], [0, 2048])


def test_the_list_goes_to_libcarpool(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(lambda include_traces: [segment(0, (8, "active_allocated"), (8, "active_allocated"))])
    assert told(monkeypatch, torch) == [(False, False, 3)]


def test_older_versions_take_a_snapshot_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, fake_torch(lambda: [segment(0, (8, "active_allocated"))])) == [(False, False, 2)]


def test_nothing_in_use_is_an_empty_list(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, fake_torch(list))[0][2] == 0


def refuses() -> None:
    raise RuntimeError("the allocator has no snapshots")


@pytest.mark.parametrize(
    "torch",
    [
        None,
        SimpleNamespace(),
        fake_torch(list, initialized=False),
        fake_torch(refuses),
        fake_torch(lambda: [{"address": 1}]),
        fake_torch(lambda: [segment(-1, (8, "active_allocated"))]),
    ],
)
def test_whatever_is_unexpected_means_that_nothing_is_known(monkeypatch: pytest.MonkeyPatch, torch: object) -> None:
    assert told(monkeypatch, torch) == NOTHING_KNOWN


def test_many_blocks_take_little_time() -> None:
    """A second is a thousand times what it takes: only what grows with the square of the number is caught."""
    blocks = [(512, "active_allocated" if i % 3 else "inactive") for i in range(1500)]
    segments = [segment(at << 30, *blocks) for at in range(10)]
    begin = time.thread_time()
    addresses, _ = live_blocks.collect(segments)
    assert time.thread_time() - begin < 1.0
    assert len(addresses) == 10_010
