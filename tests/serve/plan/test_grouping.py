"""Groups of layers: no grouping of any model finishes earlier, and none that finishes then starts earlier."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.serve.plan.grouping import NS_PER_S, LayerCost, LinkCost, at_least, finish, optimal, start

PER_NS = NS_PER_S  # a rate of one byte per nanosecond
AMOUNTS = st.one_of(st.just(0), st.integers(0, 30), st.integers(0, 1 << 60))
SMALL = st.integers(0, 12)  # near each other, so that ties and close calls are frequent
RATES = st.sampled_from([1, PER_NS, 7 * PER_NS // 10, 3 * PER_NS, (1 << 50) + 1])


def models(most: int) -> st.SearchStrategy[tuple[list[LayerCost], LinkCost]]:
    """All lengths up to ``most`` equally often, which a list left to itself does not have."""

    def of(amounts: st.SearchStrategy[int], length: int) -> st.SearchStrategy[tuple[list[LayerCost], LinkCost]]:
        layers = st.lists(st.builds(LayerCost, amounts, amounts), min_size=length, max_size=length)
        return st.tuples(layers, st.builds(LinkCost, amounts, RATES))

    return st.integers(1, most).flatmap(lambda length: of(SMALL, length) | of(AMOUNTS, length))


def arrivals(layers: list[LayerCost], link: LinkCost) -> list[int]:
    """When the last byte of the first layers has come, transfers without a cost of their own."""
    return [ceil(Fraction(size * NS_PER_S, link.rate)) for size in accumulate((it.size for it in layers), initial=0)]


def every(layers: list[LayerCost], link: LinkCost) -> Iterator[tuple[int, int, int]]:
    """What comes out of each of the 2^(n-1) groupings: finish, start, number of groups; played step by step."""
    moved, last = arrivals(layers, link), len(layers)

    def play(begin: int, groups: int, now: int, first: int | None) -> Iterator[tuple[int, int, int]]:
        if begin == last:
            yield now, first or 0, groups
        computing = 0
        for end in range(begin + 1, last + 1):
            computing += layers[end - 1].compute_ns
            there = (groups + 1) * link.transfer_ns + moved[end]
            yield from play(end, groups + 1, max(now, there) + computing, there if first is None else first)

    return play(0, 0, 0, None)


def least_idle(layers: list[LayerCost], link: LinkCost) -> int:
    """By dynamic programming over (groups, layers): cubic, for models too long to try every grouping."""
    moved, last = arrivals(layers, link), len(layers)
    computed = list(accumulate((it.compute_ns for it in layers), initial=0))
    idle, found = {0: 0}, []
    for groups in range(1, last + 1):
        idle = {
            end: min(
                max(before, groups * link.transfer_ns + moved[end] - computed[begin])
                for begin, before in idle.items()
                if begin < end
            )
            for end in range(groups, last + 1)
        }
        found.append(idle[last])
    return min(found)


@given(models(14))
def test_no_grouping_is_better(model: tuple[list[LayerCost], LinkCost]) -> None:
    grouping = optimal(*model)
    assert (finish(*model, grouping), start(*model, grouping), len(grouping)) == min(every(*model))


@given(models(40))
def test_no_grouping_of_a_longer_model_is_better(model: tuple[list[LayerCost], LinkCost]) -> None:
    layers, _ = model
    assert finish(*model, optimal(*model)) == sum(it.compute_ns for it in layers) + least_idle(*model)


@given(models(14), st.data())
def test_finish_and_start_are_those_of_the_pipeline_played(
    model: tuple[list[LayerCost], LinkCost], data: st.DataObject
) -> None:
    layers, link = model
    inner = st.sets(st.integers(1, len(layers) - 1)) if len(layers) > 1 else st.just(set[int]())
    ends = sorted(data.draw(inner) | {len(layers)})
    moved, now, begin = arrivals(layers, link), 0, 0
    for count, end in enumerate(ends, 1):
        now = max(now, count * link.transfer_ns + moved[end]) + sum(it.compute_ns for it in layers[begin:end])
        begin = end
    assert finish(*model, tuple(ends)) == now
    assert start(*model, tuple(ends)) == link.transfer_ns + moved[ends[0]]


THREE = [LayerCost(4, 10), LayerCost(6, 1), LayerCost(3, 1)]


def test_layers_that_are_hidden_travel_together() -> None:
    """The first layer comes at 2 + 4, and while it computes until 16 the others come, in one transfer, by 6 + 2 + 9."""
    link = LinkCost(2, PER_NS)
    assert optimal(THREE, link) == (1, 3)
    assert finish(THREE, link, (1, 3)) == 19
    assert finish(THREE, link, (1, 2, 3)) == 20
    assert finish(THREE, link, (3,)) == 27


def test_of_equal_groupings_the_one_that_starts_first_is_taken() -> None:
    """The long last layer decides: whether the first two come one by one or together, it is there at 14."""
    layers, link = [LayerCost(2, 1), LayerCost(2, 1), LayerCost(10, 1)], LinkCost(0, PER_NS)
    assert finish(layers, link, (1, 2, 3)) == finish(layers, link, (2, 3)) == 15
    assert optimal(layers, link) == (1, 2, 3)


def test_layers_without_bytes_travel_with_the_one_before() -> None:
    layers = [LayerCost(5, 1), LayerCost(0, 1), LayerCost(5, 100), LayerCost(0, 1)]
    assert optimal(layers, LinkCost(1, PER_NS)) == (2, 4)


def test_bytes_are_rounded_once_and_not_per_layer() -> None:
    """A thousand layers of a third of a nanosecond each are there after 334, not after 1,000."""
    layers = [LayerCost(1, 0)] * 1000
    assert finish(layers, LinkCost(0, 3 * PER_NS), tuple(range(1, 1001))) == 334


def test_a_long_model_needs_no_recursion() -> None:
    layers = [LayerCost(10, 10)] * 5000
    grouping = optimal(layers, LinkCost(1, PER_NS))
    assert finish(layers, LinkCost(1, PER_NS), grouping) < finish(layers, LinkCost(1, PER_NS), tuple(range(1, 5001)))


def test_an_empty_model_is_refused() -> None:
    with pytest.raises(ValueError, match="without layers"):
        optimal([], LinkCost(0, 1))


@pytest.mark.parametrize("grouping", [(), (1, 2), (1, 1, 3), (2, 1, 3), (0, 3), (3, 4), (4,)])
@pytest.mark.parametrize("function", [finish, start])
def test_groups_of_another_model_are_refused(function: object, grouping: tuple[int, ...]) -> None:
    assert callable(function)
    with pytest.raises(ValueError, match="model of 3 layers"):
        function(THREE, LinkCost(0, 1), grouping)


def test_impossible_figures_are_refused() -> None:
    for wrong in (lambda: LayerCost(-1, 0), lambda: LayerCost(0, -1), lambda: LinkCost(-1, 1), lambda: LinkCost(0, 0)):
        with pytest.raises(ValueError, match="cannot"):
            wrong()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(0, 60))
def test_groups_of_at_least_so_many_bytes(sizes: list[int], least: int) -> None:
    """And of no layer more than that takes."""
    ends = at_least(sizes, least)
    groups = [sizes[begin:end] for begin, end in zip((0, *ends), ends, strict=False)]
    assert [size for group in groups for size in group] == sizes
    for group in groups:
        assert sum(group[:-1]) < least or len(group) == 1
    assert all(sum(group) >= least for group in groups[:-1])


def test_no_layers_have_no_groups_of_any_size() -> None:
    with pytest.raises(ValueError, match="without layers"):
        at_least([], 1)
