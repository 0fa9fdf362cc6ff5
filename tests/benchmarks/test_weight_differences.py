"""The comparison that the demo's verdict rests on notices a single bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.five_policies.weights import differences


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch
    import torch


def saved(path: Path, state: dict[str, torch.Tensor]) -> Path:
    torch.save(state, path)
    return path


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return {"a": torch.tensor([1.0, float("nan"), 0.0]), "b": torch.arange(6).view(2, 3), "c": torch.tensor(3)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", lambda state: 0),
        ("a", lambda state: state["a"] * state["a"].new_tensor([1.0, 1.0, -1.0])),
        ("a", lambda state: state["a"].double()),
        ("b", lambda state: state["b"].view(3, 2)),
        ("c", lambda state: state["c"] + 1),
        ("d", lambda state: state["c"]),
    ],
    ids=["none", "sign of zero", "type", "shape", "value", "missing"],
)
def test_any_difference_is_named(
    tmp_path: Path,
    state: dict[str, torch.Tensor],
    name: str,
    value: Callable[[dict[str, torch.Tensor]], torch.Tensor],
) -> None:
    left = saved(tmp_path / "left.pt", state)
    copies = {key: tensor.clone() for key, tensor in state.items()}
    right = saved(tmp_path / "right.pt", copies | ({name: value(state)} if name else {}))
    assert differences(left, right) == ([name] if name else [])
