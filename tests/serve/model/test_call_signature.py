"""Arguments by name and by position."""

from __future__ import annotations

import warnings

import pytest


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, Tensor, nn, Signature, Unusable, Many, Words
    import torch
    from torch import Tensor, nn

    from carpool.serve.model.call_signature import Signature
    from carpool.serve.model.skeleton import Unusable
    from tests.serve.model.modules import Many, Words


def test_names_in_order() -> None:
    assert Signature(Words()).names(2) == ["ids", "kinds"]
    assert Signature(Many()).names(3) == ["first", "input1", "input2"]
    assert Signature(nn.Sequential()).names(1) == ["input"]


def test_arguments_in_between_have_their_defaults() -> None:
    words = Signature(Words())
    assert words.arguments({"ids": 1}) == (1,)
    assert words.arguments({"mask": 3, "ids": 1}) == (1, None, 3)
    assert Signature(Many()).arguments({"first": 1, "input1": 2}) == (1, 2)


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ({"ids": 1, "rest": 2}, "no rest; it has: ids, kinds, mask"),
        ({"mask": 1}, "also needs: ids"),
        ({"kinds": 1, "input1": 2}, "no input1"),
    ],
)
def test_what_forward_does_not_take(inputs: dict[str, int], why: str) -> None:
    with pytest.raises(Unusable, match=why):
        Signature(Words()).arguments(inputs)


def test_a_compiled_module_does_not_say() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(nn.Linear(2, 2).eval(), torch.zeros(1, 2))
    signature = Signature(traced)
    assert signature.names(1) == ["input0"]
    assert signature.arguments({"input0": 1}) == (1,)
    with pytest.raises(Unusable, match="no names"):
        signature.arguments({"x": 1})
