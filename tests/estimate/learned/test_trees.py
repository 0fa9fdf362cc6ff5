"""Trees as data: what they say, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.estimate.learned.trees import DamagedWeights, Forest, forest


def test_a_value_goes_down_to_its_leaf() -> None:
    tree = forest({"start": 1.0, "trees": [[0, 2.0, 10.0, [1, 5.0, 20.0, 30.0]], 100.0]}, 2)
    assert [tree.value(seen) for seen in ([2.0, 0.0], [2.1, 5.0], [3.0, 6.0])] == [111.0, 121.0, 131.0]
    assert forest({"start": 2, "trees": []}, 1) == Forest(2.0, ()), "no trees are allowed"


def deep(levels: int) -> Any:
    return 0.0 if levels == 0 else [0, 0.0, 0.0, deep(levels - 1)]


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"start": 0.0},
        {"start": "0", "trees": []},
        {"start": True, "trees": []},
        {"start": float("nan"), "trees": []},
        {"start": 0.0, "trees": {}},
        {"start": 0.0, "trees": [None]},
        {"start": 0.0, "trees": [[0, 1.0, 2.0]]},
        {"start": 0.0, "trees": [[2, 1.0, 2.0, 3.0]]},
        {"start": 0.0, "trees": [[-1, 1.0, 2.0, 3.0]]},
        {"start": 0.0, "trees": [[0.0, 1.0, 2.0, 3.0]]},
        {"start": 0.0, "trees": [[0, "1", 2.0, 3.0]]},
        {"start": 0.0, "trees": [deep(13)]},
    ],
)
def test_what_is_no_forest_is_refused(content: Any) -> None:
    with pytest.raises(DamagedWeights):
        forest(content, 2)
