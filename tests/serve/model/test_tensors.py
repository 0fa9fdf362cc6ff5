"""Every datatype through PyTorch and back, batches joined and divided, and what cannot be sent."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from carpool.serve.model import torch_tensors
from carpool.serve.oip.datatypes import DATATYPES
from carpool.serve.oip.errors import ModelFailed, WrongInput
from carpool.serve.oip.values import Tensor


def tensor(name: str, datatype: str, *shape: int) -> Tensor:
    """With other bytes in every place."""
    item = DATATYPES[datatype].item_bytes or 1
    size = int(torch.Size(shape).numel()) * item
    data = bytes(place % 2 if datatype == "BOOL" else place % 100 for place in range(size))
    return Tensor(name, datatype, shape, memoryview(bytearray(data)))


@pytest.mark.parametrize("datatype", sorted(torch_tensors.DTYPES))
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_there_and_back(datatype: str, shape: tuple[int, ...]) -> None:
    sent = tensor("x", datatype, *shape)
    joined = torch_tensors.joined([[sent]])
    assert joined["x"].dtype == torch_tensors.DTYPES[datatype]
    assert torch_tensors.split(joined, [1]) == [[sent]]


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
        (None, "returns a NoneType"),
        ((), "no tensors"),
        (torch.eye(2).to_sparse(), "sparse"),
        ({"x": 3}, "'x' is a int"),
        ({1: torch.zeros(1)}, "1 is a Tensor"),
        ([torch.zeros(1), [torch.zeros(1)]], "'output1' is a list"),
    ],
)
def test_answers_without_tensors(answer: object, why: str) -> None:
    with pytest.raises(ModelFailed, match=why):
        torch_tensors.named(answer)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (torch.zeros(2, dtype=torch.complex64), "complex64"),
        (torch.tensor(1.0), r"shape \[\] for 2 rows"),
        (torch.zeros(3), r"shape \[3\] for 2 rows"),
    ],
)
def test_outputs_that_cannot_be_sent(value: torch.Tensor, why: str) -> None:
    with pytest.raises(ModelFailed, match=why):
        torch_tensors.split({"y": value}, [1, 1])


def test_outputs_in_any_order_of_memory() -> None:
    value = torch.arange(6.0).reshape(2, 3).t()[::1]
    (((sent,),)) = torch_tensors.split({"y": value}, [1])
    assert torch.frombuffer(bytearray(sent.data), dtype=torch.float32).tolist() == [0, 3, 1, 4, 2, 5]
    first, second = torch_tensors.split({"y": value[:2]}, [1, 1])
    assert torch.frombuffer(bytearray(second[0].data), dtype=torch.float32).tolist() == [1, 4]
    assert first[0].shape == (1, 2)
