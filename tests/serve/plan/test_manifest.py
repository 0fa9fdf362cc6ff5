"""Where storages lie: nothing overlaps, groups are whole pages, and every storage is in its layer's group."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.protocol.records import encode
from carpool.serve.plan.manifest import ALIGNMENT, HEADER_BYTES, PAGE, STATE_BYTES, lay_out


@st.composite
def models(draw: st.DrawFn) -> tuple[list[int], list[list[int]], list[int], tuple[int, ...]]:
    sizes = draw(st.lists(st.integers(1, 20_000), min_size=1, max_size=30))
    order = draw(st.permutations(range(len(sizes))))
    private = draw(st.integers(0, len(sizes)))
    rest = order[private:]
    cuts = sorted(draw(st.sets(st.integers(0, len(rest)), max_size=8)) | {0, len(rest)})
    layers = [list(rest[a:b]) for a, b in pairwise(cuts)] or [[]]
    ends = draw(st.sets(st.integers(1, len(layers)))) | {len(layers)}
    return sizes, layers, list(order[:private]), tuple(sorted(ends))


@given(models())
def test_every_storage_has_its_place(model: tuple[list[int], list[list[int]], list[int], tuple[int, ...]]) -> None:
    sizes, layers, private, grouping = model
    layout = lay_out(sizes, layers, private, grouping)
    taken = sorted((offset, offset + size) for offset, size in zip(layout.offsets, sizes, strict=True))
    assert all(end <= begin for (_, end), (begin, _) in pairwise(taken))
    assert layout.bounds[0] >= HEADER_BYTES + STATE_BYTES * len(grouping)
    assert taken[0][0] >= layout.bounds[0]
    assert taken[-1][1] <= layout.size
    assert all(offset % ALIGNMENT == 0 for offset in layout.offsets)
    assert all(bound % PAGE == 0 for bound in (*layout.bounds, layout.size))
    for (begin, end), (low, high) in zip(pairwise((0, *grouping)), pairwise(layout.bounds), strict=True):
        for storage in (s for layer in layers[begin:end] for s in layer):
            assert low <= layout.offsets[storage] and layout.offsets[storage] + sizes[storage] <= high
    assert all(layout.offsets[storage] >= layout.bounds[-1] for storage in private)


@pytest.mark.parametrize("grouping", [(), (1,), (0, 2), (2, 1), (1, 1, 2), (1, 3)])
def test_groups_that_are_not_all_layers(grouping: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="groups end at"):
        lay_out([1, 1], [[0], [1]], [], grouping)


@pytest.mark.parametrize("layers", [[[0]], [[0, 1], [1]], [[0], [1, 2]]])
def test_storages_without_a_layer_or_with_two(layers: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="one layer"):
        lay_out([1, 1], layers, [], (len(layers),))


def test_the_bytes_from_which_keys_are_made() -> None:
    """Daemons and shims keep weights by their key: it has to be the same in each version of Carpool."""
    layout = lay_out([10], [[0]], [], (1,))
    assert encode(layout) == b'{"offsets":[4096],"bounds":[4096,8192],"size":8192}'
