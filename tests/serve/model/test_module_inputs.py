"""What a model takes and returns, from its own example; arguments by name and by position."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from carpool.serve.oip.errors import ModelFailed
from carpool.serve.oip.values import TensorSpec


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global IDS, MASK, torch, nn, Example, Signature, Unusable, Many, Masked, Words
    import torch
    from torch import nn

    from carpool.serve.model.module_inputs import Example, Signature
    from carpool.serve.model.skeleton import Unusable
    from tests.serve.model.modules import Many, Masked, Words

    IDS, MASK = torch.arange(6).reshape(3, 2), torch.zeros(3, 2, dtype=torch.bool)


@pytest.mark.parametrize("given", [lambda: (IDS, MASK), lambda: [IDS, MASK], lambda: {"ids": IDS, "mask": MASK}])
def test_names_and_shapes(given: Callable[[], Any]) -> None:
    example = Example(Masked(example_inputs=given()), 8)
    assert [tuple(value.shape) for value in example.arguments] == [(8, 2), (8, 2)]
    model = example.describe("words", {"output": torch.zeros(8, 2, 5)})
    assert model.inputs == (TensorSpec("ids", "INT64", (-1, 2)), TensorSpec("mask", "BOOL", (-1, 2)))
    assert model.outputs == (TensorSpec("output", "FP32", (-1, 2, 5)),)
    assert (model.name, model.max_batch) == ("words", 8)


def test_rows_are_the_examples_in_turns() -> None:
    example = Example(nn_with(IDS), 4)
    assert example.inputs["input"][:, 0].tolist() == [0, 2, 4, 0]
    assert Example(nn_with(IDS), 2).inputs["input"].shape == (2, 2)


def nn_with(given: Any, **attributes: Any) -> nn.Module:
    module = nn.Sequential()
    module.example_inputs = given
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


def test_without_a_batch_everything_is_as_it_is() -> None:
    example = Example(nn_with(torch.tensor(3.0)), 0)
    model = example.describe("one", {"output": torch.zeros(5)})
    assert model.inputs[0].shape == ()
    assert model.outputs[0].shape == (5,)


def test_dimensions_of_any_size() -> None:
    module = Masked(example_inputs=(IDS, MASK), dynamic_dims={"ids": [1], "output": [2]})
    model = Example(module, 8).describe("words", {"output": torch.zeros(8, 2, 5)})
    assert model.inputs[0].shape == (-1, -1)
    assert model.inputs[1].shape == (-1, 2)
    assert model.outputs[0].shape == (-1, 2, -1)


@pytest.mark.parametrize("dims", [{"idz": [1]}, {"ids": [2]}, {"ids": 1}, [1], None])
def test_dimensions_that_are_not_there(dims: Any) -> None:
    example = Example(Masked(example_inputs=(IDS, MASK), dynamic_dims=dims), 8)
    with pytest.raises(Unusable, match="dynamic_dims names dimensions of output, ids, mask"):
        example.describe("words", {"output": torch.zeros(8)})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (lambda: None, "does not describe its inputs: let the factory set its attribute `example_inputs`"),
        (lambda: (), "does not describe its inputs"),
        (dict, "does not describe its inputs"),
        (lambda: 3, "'ids' is a int"),
        (lambda: [IDS, [1]], "'mask' is a list"),
        (lambda: torch.tensor(3.0), r"'ids' has shape \[\]"),
        (lambda: torch.zeros(0, 3), r"'ids' has shape \[0, 3\]"),
        (lambda: {"ids": IDS, "masks": MASK}, "forward has no masks"),
        (lambda: {"mask": MASK}, "also needs: ids"),
    ],
)
def test_examples_that_say_too_little(given: Callable[[], Any], why: str) -> None:
    with pytest.raises(Unusable, match=why):
        Example(Masked(example_inputs=given()), 8)


@pytest.mark.parametrize("shape", [(3, 8), ()])
def test_outputs_that_cannot_be_divided(shape: tuple[int, ...]) -> None:
    output = torch.zeros(shape)
    with pytest.raises(Unusable, match="register the model with --max-batch 1"):
        Example(nn_with(IDS), 8).describe("m", {"output": output})
    assert Example(nn_with(IDS), 1).describe("m", {"output": output}).max_batch == 1


def test_a_type_without_a_name() -> None:
    with pytest.raises(ModelFailed, match="complex64"):
        Example(nn_with(IDS), 1).describe("m", {"output": torch.zeros(1, dtype=torch.complex64)})


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
