"""The comparison that the demo's verdict rests on notices a single bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.five_policies.weights import differences


def saved(path: Path, state: dict[str, torch.Tensor]) -> Path:
    torch.save(state, path)
    return path


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return {"a": torch.tensor([1.0, float("nan"), 0.0]), "b": torch.arange(6).view(2, 3), "c": torch.tensor(3)}


def test_equal_weights_have_no_differences(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    left = saved(tmp_path / "left.pt", state)
    right = saved(tmp_path / "right.pt", {name: value.clone() for name, value in state.items()})
    assert differences(left, right) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a", torch.tensor([1.0, float("nan"), -0.0])),
        ("a", torch.tensor([1.0, float("nan"), 0.0], dtype=torch.float64)),
        ("b", torch.arange(6).view(3, 2)),
        ("c", torch.tensor(4)),
        ("d", torch.tensor(1)),
    ],
    ids=["sign of zero", "type", "shape", "value", "missing"],
)
def test_any_difference_is_named(
    tmp_path: Path, state: dict[str, torch.Tensor], name: str, value: torch.Tensor
) -> None:
    left = saved(tmp_path / "left.pt", state)
    right = saved(tmp_path / "right.pt", {**state, name: value})
    assert differences(left, right) == [name]
