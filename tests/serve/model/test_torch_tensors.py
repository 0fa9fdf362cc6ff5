"""Every datatype through PyTorch and back, batches joined and divided, and what cannot be sent."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.serve.oip.errors import ModelFailed, WrongInput
from carpool.serve.oip.values import DATATYPES, Tensor


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, torch_tensors
    import torch

    from carpool.serve.model import torch_tensors


def tensor(name: str, datatype: str, *shape: int) -> Tensor:
    """With other bytes in every place."""
    item = DATATYPES[datatype].item_bytes or 1
    size = math.prod(shape) * item
    data = bytes(place % 2 if datatype == "BOOL" else place % 100 for place in range(size))
    return Tensor(name, datatype, shape, memoryview(bytearray(data)))


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_there_and_back(shape: tuple[int, ...]) -> None:
    assert [name for name in torch_tensors.DTYPES if not comes_back(tensor("x", name, *shape))] == []


def comes_back(sent: Tensor) -> bool:
    joined = torch_tensors.joined([[sent]])
    right = joined["x"].dtype == torch_tensors.DTYPES[sent.datatype]
    return right and torch_tensors.split(joined, [1]) == [[sent]]


def test_all_datatypes_but_bytes() -> None:
    assert set(torch_tensors.DTYPES) == set(DATATYPES) - {"BYTES"}
    with pytest.raises(WrongInput, match="'x' is of BYTES"):
        torch_tensors.joined([[tensor("x", "BYTES", 1)]])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_batches_are_joined_and_divided(rows: list[int]) -> None:
    requests = [[tensor("a", "FP32", count, 2), tensor("b", "INT64", count)] for count in rows]
    joined = torch_tensors.joined(requests)
    assert joined["a"].shape == (sum(rows), 2)
    assert torch_tensors.split(joined, rows) == requests


def test_inputs_are_the_models_own() -> None:
    """The message's memory may be used again, and a model may write into its inputs."""
    data = bytearray(4)
    joined = torch_tensors.joined([[Tensor("x", "UINT8", (4,), memoryview(data))]])
    data[0] = 7
    assert joined["x"].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "other",
    [
        [tensor("b", "FP32", 1, 2)],
        [tensor("a", "FP32", 1, 3)],
        [tensor("a", "FP64", 1, 2)],
        [tensor("a", "FP32", 1, 2), tensor("b", "FP32", 1)],
    ],
)
def test_batches_that_do_not_fit_together(other: list[Tensor]) -> None:
    with pytest.raises(WrongInput, match="batch"):
        torch_tensors.joined([[tensor("a", "FP32", 1, 2)], other])


def test_names_of_outputs() -> None:
    one, two = torch.zeros(1), torch.ones(1)
    assert list(torch_tensors.named(one)) == ["output"]
    assert list(torch_tensors.named([one, two])) == ["output0", "output1"]
    assert list(torch_tensors.named((one,))) == ["output0"]
    assert torch_tensors.named({"logits": one}) == {"logits": one}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda: None, "returns a NoneType"),
        (lambda: (), "no tensors"),
        (lambda: torch.eye(2).to_sparse(), "sparse"),
        (lambda: {"x": 3}, "'x' is a int"),
        (lambda: {1: torch.zeros(1)}, "1 is a Tensor"),
        (lambda: [torch.zeros(1), [torch.zeros(1)]], "'output1' is a list"),
    ],
)
def test_answers_without_tensors(answer: Callable[[], object], why: str) -> None:
    with pytest.raises(ModelFailed, match=why):
        torch_tensors.named(answer())


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (lambda: torch.zeros(2, dtype=torch.complex64), "complex64"),
        (lambda: torch.tensor(1.0), r"shape \[\] for 2 rows"),
        (lambda: torch.zeros(3), r"shape \[3\] for 2 rows"),
    ],
)
def test_outputs_that_cannot_be_sent(value: Callable[[], torch.Tensor], why: str) -> None:
    with pytest.raises(ModelFailed, match=why):
        torch_tensors.split({"y": value()}, [1, 1])


def test_outputs_in_any_order_of_memory() -> None:
    value = torch.arange(6.0).reshape(2, 3).t()[::1]
    (((sent,),)) = torch_tensors.split({"y": value}, [1])
    assert torch.frombuffer(bytearray(sent.data), dtype=torch.float32).tolist() == [0, 3, 1, 4, 2, 5]
    first, second = torch_tensors.split({"y": value[:2]}, [1, 1])
    assert torch.frombuffer(bytearray(second[0].data), dtype=torch.float32).tolist() == [1, 4]
    assert first[0].shape == (1, 2)
