"""The layers of the three models: as many as PipeSwitch counts, and as many parameters as the models have."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.networks import WEIGHT_BYTES, Work, bert_base, inception_v3, resnet152


@pytest.mark.parametrize(
    ("model", "layers", "parameters", "normalized", "billions"),
    [
        (resnet152, 464, 60_192_808, 75_712, 11.5),
        (inception_v3, 189, 23_834_568, 17_216, 5.7),
        (bert_base, 139, 109_482_240, 0, 11.2),
    ],
)
def test_counts_are_the_published_ones(
    model: Callable[[], list[Work]], layers: int, parameters: int, normalized: int, billions: float
) -> None:
    """Each channel that a batch norm normalizes has a mean and a variance, which are no parameters."""
    works = model()
    assert len(works) == layers
    assert sum(work.size for work in works) == WEIGHT_BYTES * (parameters + 2 * normalized)
    assert sum(work.operations for work in works) == pytest.approx(billions * 1e9, rel=0.01)
