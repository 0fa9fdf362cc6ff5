"""Responses as bytes."""

from __future__ import annotations

import json
import struct

import pytest

from carpool.serve.oip.datatypes import DATATYPES, pack, pack_strings
from carpool.serve.oip.errors import WrongInput
from carpool.serve.oip.messages import InferRequest, WantedOutput
from carpool.serve.oip.responses import decode_response, encode_response
from carpool.serve.oip.values import Tensor

SAMPLES = {
    "BOOL": [True, False],
    **{f"UINT{bits}": [0, 2**bits - 1] for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)},
    **{name: [0.5, -3.0] for name in ("FP16", "FP32", "FP64")},
    "BYTES": ["", "äh"],
}


def request(*names: str, binary: bool) -> InferRequest:
    return InferRequest("m", (), tuple(WantedOutput(name, binary) for name in names), "7")


@pytest.mark.parametrize("datatype", SAMPLES)
def test_json_holds_every_datatype_but_one(datatype: str) -> None:
    tensor = Tensor("y", datatype, (2, 1), pack(DATATYPES[datatype], SAMPLES[datatype]))
    message = encode_response(request("y", binary=False), [tensor])
    output = {"name": "y", "shape": [2, 1], "datatype": datatype, "data": SAMPLES[datatype]}
    assert json.loads(message.body) == {"model_name": "m", "model_version": "1", "id": "7", "outputs": [output]}
    assert decode_response(message.body) == [tensor]


def test_binary_and_json_side_by_side() -> None:
    wanted = InferRequest("m", (), (WantedOutput("b", True), WantedOutput("a", False), WantedOutput("c", True)))
    tensors = [Tensor(name, "BF16" if name == "c" else "INT8", (2,), data) for name, data in
               (("a", b"\1\2"), ("b", b"\3\4"), ("c", b"\5\6\7\x08"), ("d", b"\0\0"))]  # fmt: skip
    message = encode_response(wanted, tensors)
    assert message.header_bytes is not None and message.body[message.header_bytes :] == b"\3\4\5\6\7\x08"
    outputs = {tensor.name: bytes(tensor.data) for tensor in decode_response(message.body, message.header_bytes)}
    assert outputs == {"b": b"\3\4", "a": b"\1\2", "c": b"\5\6\7\x08"}


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor("y", "FP32", (1,), struct.pack("<f", float("nan"))),
        Tensor("y", "FP64", (1,), struct.pack("<d", float("inf"))),
        Tensor("y", "BF16", (1,), b"\0\0"),
        Tensor("y", "BYTES", (1,), pack_strings([b"\xff"])),
    ],
    ids=lambda tensor: tensor.datatype,
)
def test_what_json_cannot_hold_has_to_be_asked_for_as_binary_data(tensor: Tensor) -> None:
    with pytest.raises(WrongInput, match=r"output 'y' .* JSON cannot hold: ask for it as binary data"):
        encode_response(request("y", binary=False), [tensor])
    message = encode_response(request("y", binary=True), [tensor])
    assert decode_response(message.body, message.header_bytes) == [tensor]


def test_what_is_no_response() -> None:
    output = {"name": "y", "shape": [1] * 33, "datatype": "INT8", "data": [1]}
    with pytest.raises(WrongInput, match="output 'y': has 33 dimensions; at most 32 are possible"):
        decode_response(json.dumps({"model_name": "m", "outputs": [output]}).encode())
    with pytest.raises(WrongInput, match="there is no datatype 'INT9'"):
        decode_response(json.dumps({"model_name": "m", "outputs": [output | {"datatype": "INT9"}]}).encode())
