"""Roll-ups say of the samples what the samples themselves say."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from carpool.telemetry.samples import KEPT, CapabilityLevel, RollupSpan, Sample, Spans, add, buckets, spans_of

quantities = st.fixed_dictionaries({name: st.none() | st.integers(0, 1 << 50) for name in KEPT})
moments = st.lists(st.tuples(st.integers(0, 500), quantities), max_size=40)


def sample(values: dict[str, int | None]) -> Sample:
    return Sample(0, CapabilityLevel.HOST, **values)  # type: ignore[arg-type]


@given(moments, st.integers(1, 100), st.integers(1, 5))
def test_least_mean_and_most_are_those_of_the_samples(
    taken: list[tuple[int, dict[str, int | None]]], step: int, coarser: int
) -> None:
    """Also of roll-ups of roll-ups."""
    fine = buckets([(when, spans_of(sample(values))) for when, values in taken], step)
    for size, found in ((step, fine), (step * coarser, buckets(list(fine.items()), step * coarser))):
        known: dict[tuple[int, str], list[int]] = defaultdict(list)
        for when, values in taken:
            for name, value in values.items():
                if value is not None:
                    known[when // size * size, name].append(value)
        assert {(start, name): span for start, spans in found.items() for name, span in spans.items()} == {
            key: RollupSpan(min(values), sum(values), max(values), len(values)) for key, values in known.items()
        }
        for key, values in known.items():
            assert found[key[0]][key[1]].mean == round(sum(values) / len(values))


def test_buckets_are_in_order_and_adding_leaves_what_is_added_alone() -> None:
    into: Spans = {}
    one: Spans = {"used_bytes": RollupSpan(1, 1, 1, 1)}
    assert list(buckets([(25, one), (3, one), (21, one)], 10)) == [0, 20]
    add(into, one)
    add(into, one)
    assert into == {"used_bytes": RollupSpan(1, 2, 1, 2)} and one == {"used_bytes": RollupSpan(1, 1, 1, 1)}
