"""Requests and responses: what was encoded arrives as it was, and everything else is refused with a reason."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.serve.oip.codec import decode_request, decode_response, encode_request, encode_response
from carpool.serve.oip.errors import WrongInput
from carpool.serve.oip.messages import InferRequest, Message, WantedOutput
from carpool.serve.oip.values import DATATYPES, ModelMetadata, Tensor, TensorSpec, pack, pack_strings

MODEL = ModelMetadata(
    "m",
    (TensorSpec("x", "FP32", (-1, 2)), TensorSpec("n", "INT8", (-1,))),
    (TensorSpec("y", "FP32", (-1,)), TensorSpec("z", "BYTES", (-1,))),
    max_batch=4,
)
X = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.5, -2]}
N = {"name": "n", "datatype": "INT8", "shape": [1], "data": [-128]}
GOOD: dict[str, Any] = {"id": "7", "inputs": [X, N], "parameters": {"timeout": 9, "priority": 1}}


def with_x(**changes: Any) -> dict[str, Any]:
    merged = {name: value for name, value in {**X, **changes}.items() if value is not None}
    return {"inputs": [merged, N]}


def decoded(request: object, binary: bytes = b"", header_bytes: int | None = None) -> Any:
    head = json.dumps(request).encode()
    length = header_bytes if header_bytes is not None else len(head) if binary else None
    return decode_request(MODEL, head + binary, length)


def test_json_becomes_tensors() -> None:
    request = decoded(GOOD)
    assert request.inputs[0] == Tensor("x", "FP32", (1, 2), b"\0\0\xc0\x3f\0\0\0\xc0")
    assert request.inputs[1] == Tensor("n", "INT8", (1,), b"\x80")
    assert (request.model, request.id, request.timeout_us, request.priority, request.rows) == ("m", "7", 9, 1, 1)
    assert request.outputs == (WantedOutput("y", False), WantedOutput("z", False))


def test_inputs_come_in_the_order_of_the_model() -> None:
    assert [tensor.name for tensor in decoded({"inputs": [N, X]}).inputs] == ["x", "n"]


def test_nested_data_is_flat_data() -> None:
    nested = decoded(with_x(data=[[1.5, -2]]))
    assert nested.inputs == decoded(with_x()).inputs


def test_binary_data_lies_behind_the_json_in_the_order_of_the_request() -> None:
    x = {name: value for name, value in X.items() if name != "data"} | {"parameters": {"binary_data_size": 8}}
    n = {name: value for name, value in N.items() if name != "data"} | {"parameters": {"binary_data_size": 1}}
    request = decoded({"inputs": [n, x]}, b"\x05" + bytes(8))
    assert [bytes(tensor.data) for tensor in request.inputs] == [bytes(8), b"\x05"]


def test_outputs_are_wanted_as_the_request_says() -> None:
    request = GOOD | {
        "parameters": {"binary_data_output": True},
        "outputs": [{"name": "z"}, {"name": "y", "parameters": {"binary_data": False}}],
    }
    assert decoded(request).outputs == (WantedOutput("z", True), WantedOutput("y", False))


def test_no_timeout_is_none() -> None:
    assert decoded(GOOD | {"parameters": {"timeout": 0}}).timeout_us is None


def test_what_is_not_known_is_no_harm() -> None:
    request = GOOD | {"model_name": "m", "parameters": {"mine": "yes"}}
    assert decoded(request).rows == 1


BAD: dict[str, tuple[object, str]] = {
    "no object": ([], r"Expected `object`"),
    "no inputs": ({}, r"missing required field `inputs`"),
    "an input is missing": ({"inputs": [X]}, r"model 'm' also needs: n"),
    "an input twice": ({"inputs": [X, X, N]}, r"input 'x': is given twice"),
    "unknown input": ({"inputs": [X, N, X | {"name": "q"}]}, r"input 'q': model 'm' has no such input; it has: x, n"),
    "other datatype": (with_x(datatype="INT32"), r"input 'x': is 'INT32', but the model takes FP32"),
    "other rank": (with_x(shape=[2]), r"input 'x': the shape \[2\] is not the model's, \[-1, 2\]"),
    "other shape": (with_x(shape=[1, 3]), r"input 'x': the shape \[1, 3\] is not the model's"),
    "negative shape": (with_x(shape=[-1, 2]), r"shape\[0\]`|>= 0"),
    "a shape that is no number": (with_x(shape=["1", 2]), r"shape\[0\]`"),
    "too few elements": (with_x(data=[1]), r"input 'x': has 1 elements where its shape has 2"),
    "shape too large": (with_x(shape=[2**62, 2]), r"input 'x': has 2 elements where its shape has 9223372036854775808"),
    "size beyond 64 bits": (with_x(shape=[10**30, 2]), r"shape\[0\]`"),
    "ragged": (with_x(shape=[2, 2], data=[[1, 2], [3]]), r"input 'x': the nested data does not have the shape"),
    "too deep": (with_x(data=[[[1, 2]]]), r"input 'x': the data is not as datatype and shape say"),
    "text for numbers": (with_x(data=["1", "2"]), r"input 'x': .* got `str`"),
    "booleans for numbers": (with_x(data=[True, False]), r"input 'x': .* got `bool`"),
    "half a surrogate pair": (GOOD | {"id": "\ud800"}, r"the JSON is not as the protocol says"),
    "null": (with_x(data=[1, None]), r"input 'x': .* got `null`"),
    "beyond float": (with_x(data=[1e39, 0]), r"input 'x': holds a value that FP32 cannot"),
    "beyond int": ({"inputs": [X, N | {"data": [128]}]}, r"input 'n': holds a value that INT8 cannot"),
    "no int": ({"inputs": [X, N | {"data": [1.0]}]}, r"input 'n': .* got `float`"),
    "no data": (with_x(data=None), r"input 'x': has no data"),
    "data twice": (with_x(parameters={"binary_data_size": 8}), r"input 'x': has data in the JSON and a binary"),
    "binary without bytes": (with_x(data=None, parameters={"binary_data_size": 8}), r"input 'x': .* 0 bytes .* left"),
    "negative size": (with_x(data=None, parameters={"binary_data_size": -1}), r"input 'x': binary_data_size is -1"),
    "size is true": (with_x(data=None, parameters={"binary_data_size": True}), r"size is True; it must be of type int"),
    "shared memory": (with_x(data=None, parameters={"shared_memory_region": "r"}), r"input 'x': the parameter shared_"),
    "sequence": (GOOD | {"parameters": {"sequence_id": 5}}, r"the parameter sequence_id is not supported"),
    "classification": (GOOD | {"outputs": [{"name": "y", "parameters": {"classification": 3}}]}, r"output 'y'"),
    "unknown output": (GOOD | {"outputs": [{"name": "q"}]}, r"output 'q': model 'm' has no such output; it has: y, z"),
    "an output twice": (GOOD | {"outputs": [{"name": "y"}, {"name": "y"}]}, r"output 'y': is asked for twice"),
    "timeout is text": (GOOD | {"parameters": {"timeout": "9"}}, r"timeout is '9'; it must be of type int"),
    "negative timeout": (GOOD | {"parameters": {"timeout": -1}}, r"timeout is -1; it must be at least 0"),
    "priority beyond": (GOOD | {"parameters": {"priority": 2**63}}, r"priority is 9223372036854775808"),
    "parameter is a list": (GOOD | {"parameters": {"mine": []}}, r"got `array`"),
    "rows differ": (
        {"inputs": [X, N | {"shape": [2], "data": [1, 2]}]},
        r"the inputs have different first dimensions: \[1, 2\]",
    ),
    "empty batch": (
        {"inputs": [X | {"shape": [0, 2], "data": []}, N | {"shape": [0], "data": []}]},
        r"a batch of 0: model 'm' takes 1 to 4",
    ),
    "large batch": (
        {"inputs": [X | {"shape": [5, 2], "data": [0] * 10}, N | {"shape": [5], "data": [0] * 5}]},
        r"a batch of 5: model 'm' takes 1 to 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_malformed_requests_are_refused_with_what_is_wrong_and_where(name: str) -> None:
    request, text = BAD[name]
    with pytest.raises(WrongInput, match=text):
        decoded(request)


def test_bytes_that_nobody_asked_for() -> None:
    with pytest.raises(WrongInput, match="3 bytes of binary data belong to no tensor"):
        decoded(GOOD, b"abc")


def test_a_length_beyond_the_body() -> None:
    with pytest.raises(WrongInput, match="is said to have 9999 bytes, but the body has"):
        decoded(GOOD, header_bytes=9999)


DEEP = b"[" * 100_000


@pytest.mark.parametrize("body", [b"", b"\xff", DEEP, b'{"x":' + DEEP, b'{"inputs":[{"data":' + DEEP, b'{"id": NaN}'])
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(WrongInput, match="the JSON is "):
        decode_request(MODEL, body)


def test_a_batch_needs_inputs_that_have_rows() -> None:
    with pytest.raises(ValueError, match="have to begin with -1"):
        ModelMetadata("m", (TensorSpec("x", "FP32", ()),), (), max_batch=2)


@pytest.mark.parametrize(
    ("datatype", "size", "data", "text"),
    [
        ("BYTES", 1, b"\1\0\0", "ends within the length of an element"),
        ("BYTES", 1, b"\5\0\0\0abc", "ends within an element of 5 bytes"),
        ("BYTES", 1, pack_strings([b"a", b"b"]), "has 2 elements where its shape has 1"),
        ("BOOL", 2, b"\0\2", "a BOOL is a byte of value 0 or 1"),
    ],
)
def test_binary_data_that_is_no_such_datatype(datatype: str, size: int, data: bytes, text: str) -> None:
    model = ModelMetadata("m", (TensorSpec("x", datatype, (size,)),), ())
    message = encode_request([Tensor("x", datatype, (size,), data)])
    with pytest.raises(WrongInput, match=f"input 'x': {text}"):
        decode_request(model, message.body, message.header_bytes)


# What hypothesis makes up

SHAPES = st.lists(st.integers(0, 3), max_size=3)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    datatype = DATATYPES[draw(st.sampled_from(sorted(DATATYPES)))]
    shape = draw(SHAPES)
    count = 1
    for size in shape:
        count *= size
    if datatype.item_bytes is None:
        data = pack_strings(draw(st.lists(st.binary(max_size=5), min_size=count, max_size=count)))
    elif datatype.item is bool:
        data = pack(datatype, draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    else:
        size = count * datatype.item_bytes
        data = draw(st.binary(min_size=size, max_size=size))
    return Tensor(draw(st.text(max_size=5)), datatype.name, tuple(shape), data)


def model_of(given: list[Tensor]) -> ModelMetadata:
    specs = tuple(TensorSpec(tensor.name, tensor.datatype, (-1,) * len(tensor.shape)) for tensor in given)
    return ModelMetadata("m", specs, specs)


@given(st.lists(tensors(), max_size=4, unique_by=lambda tensor: tensor.name))
def test_what_is_encoded_arrives(given: list[Tensor]) -> None:
    message = encode_request(given, request_id="a", timeout_us=5, priority=2)
    request = decode_request(model_of(given), message.body, message.header_bytes)
    assert [(t.name, t.datatype, t.shape, bytes(t.data)) for t in request.inputs] == [
        (t.name, t.datatype, t.shape, t.data) for t in given
    ]
    assert (request.id, request.timeout_us, request.priority) == ("a", 5, 2)


WORDS = [
    *("inputs", "name", "x", "n", "shape", "datatype", "FP32", "INT8", "BYTES", "data"),
    *("parameters", "outputs", "id", "binary_data_size", "timeout", "binary_data_output"),
]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(WORDS)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=20,
)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[bytes, int | None]:
    """A valid request with something replaced, removed or added, in its values or in its bytes."""
    x = {name: value for name, value in X.items() if name != "data"} | {"parameters": {"binary_data_size": 8}}
    request = json.loads(
        json.dumps(draw(st.sampled_from([GOOD, {"inputs": [x, N]}, GOOD | {"outputs": [{"name": "y"}]}])))
    )
    for _ in range(draw(st.integers(0, 2))):
        _mutate(draw, request)
    head = json.dumps(request).encode()
    message = Message(head + bytes(8), len(head)) if draw(st.booleans()) else Message(head)
    body = bytearray(message.body)
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(body)))
        body[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    length = draw(st.just(message.header_bytes) | st.none() | st.integers(0, len(body) + 2))
    return bytes(body), length


def _mutate(draw: st.DrawFn, value: Any) -> None:
    """Go down at random and change something there."""
    while True:
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not places or draw(st.booleans()):
            break
        inner = value[draw(st.sampled_from(places))]
        if not isinstance(inner, (dict, list)):
            break
        value = inner
    if places and draw(st.booleans()):
        del value[draw(st.sampled_from(places))]
    elif isinstance(value, dict):
        value[draw(st.sampled_from([*value, *WORDS]))] = draw(VALUES)
    else:
        value.insert(draw(st.integers(0, len(value))), draw(VALUES))


@settings(max_examples=500)
@given(
    mutated() | st.tuples(VALUES.map(lambda v: json.dumps(v).encode()) | st.binary(), st.none() | st.integers(0, 99))
)
def test_nothing_but_wrong_input_is_ever_raised(request: tuple[bytes, int | None]) -> None:
    body, header_bytes = request
    try:
        decoded = decode_request(MODEL, body, header_bytes)
    except WrongInput as error:
        assert str(error)
        return
    sizes = {"FP32": 4, "INT8": 1}
    for tensor, spec in zip(decoded.inputs, MODEL.inputs, strict=True):
        assert (tensor.name, tensor.datatype) == (spec.name, spec.datatype)
        count = 1
        for size in tensor.shape:
            count *= size
        assert len(tensor.data) == count * sizes[tensor.datatype]


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
