"""Frames come back as they were, and whatever else comes is `Broken`, never anything worse."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.protocol.records import Kinds, encode_tagged
from carpool.serve.oip.values import DATATYPES, ModelMetadata, Tensor, TensorSpec
from carpool.serve.plan.grouping import LinkCost
from carpool.serve.plan.manifest import Layer, Layout, Manifest, Profile, Source, SourceFile
from carpool.serve.wire import messages
from carpool.serve.wire.messages import (
    PREFIX,
    Admit,
    Answer,
    Broken,
    Cost,
    Frame,
    FromPreparer,
    FromWorker,
    Head,
    Infer,
    Load,
    Ready,
    ToWorker,
    Unload,
    decode,
    encode,
    heads,
    sizes,
)

ENTRY = Manifest(
    Source("shop:model", "w.safetensors", 3), "s", b"k" * 32, Layout((4096,), (4096, 8192), 8192),
    Profile("p", (Layer((0,), 10, 5),), (), 7, LinkCost(1, 2)), None, (SourceFile("/shop/model.py", "d"),),
)  # fmt: skip


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    datatype = draw(st.sampled_from(list(DATATYPES.values())))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    count = 1
    for size in shape:
        count *= size
    size = count * datatype.item_bytes if datatype.item_bytes is not None else draw(st.integers(0, 9))
    return Tensor(draw(st.text(max_size=5)), datatype.name, shape, draw(st.binary(min_size=size, max_size=size)))


requests_of_tensors = st.lists(st.lists(tensors(), max_size=3), max_size=3)


def through(kinds: Any, sent: Any, requests: Any = (), fd: int | None = None) -> Frame:
    return parsed(kinds, b"".join(encode(sent, requests)), fd)


def parsed(kinds: Any, data: bytes, fd: int | None = None) -> Frame:
    header, body = sizes(bytearray(data[: PREFIX.size]))
    rest = bytearray(data[PREFIX.size :])
    assert len(rest) == header + body
    return decode(Kinds(kinds), rest[:header], rest[header:], fd)


@given(requests_of_tensors, st.none() | st.integers(0, 2**62))
def test_tensors_arrive(requests: list[list[Tensor]], deadline_us: int | None) -> None:
    sent = Infer(7, "resnet", heads(requests), deadline_us)
    got = through(ToWorker, sent, requests)
    assert got == Frame(sent, requests, None)
    assert through(FromWorker, Answer(7, heads(requests), Cost(1, 2, 3)), requests).requests == requests


def test_tensors_are_not_copied() -> None:
    data = memoryview(bytearray(8))
    assert any(buffer is data for buffer in encode(Unload("x"), [[Tensor("x", "FP32", (2,), data)]]))
    header = encode_tagged(Infer(1, "m", ((Head("x", "FP32", (2,), 8),),), None))
    body = bytearray(8)
    ((got,),) = decode(Kinds(ToWorker), bytearray(header), body, None).requests
    body[0] = 1
    assert got.data[0] == 1


def test_what_brings_a_descriptor() -> None:
    model = ModelMetadata("m", (TensorSpec("x", "FP32", (-1, 3)),), (TensorSpec("y", "FP32", (-1, 3)),), 8)
    for kinds, sent in ((ToWorker, Load(1, "m", ENTRY, 8)), (FromPreparer, Ready(ENTRY, model))):
        assert through(kinds, sent, fd=9) == Frame(sent, [], 9)
        with pytest.raises(Broken, match="without a descriptor"):
            through(kinds, sent)
    with pytest.raises(Broken, match="with a descriptor"):
        through(FromPreparer, Admit(3), fd=9)


def test_the_other_directions_messages_are_refused() -> None:
    with pytest.raises(Broken, match="header"):
        through(FromWorker, Unload("x"))


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (Head("x", "FP33", (2,), 8), "no datatype 'FP33'"),
        (Head("x", "FP32", (3,), 8), "8 bytes, and shape"),
        (Head("x", "FP32", (4,), 16), "of which 8 have come"),
        (Head("x", "FP32", (1,), 4), "4 bytes belong to no tensor"),
        (Head("x", "FP32", (-2,), 8), "header"),
    ],
)
def test_a_body_that_does_not_fit(head: Head, why: str) -> None:
    header = encode_tagged(Infer(1, "m", ((head,),), None))
    with pytest.raises(Broken, match=why):
        decode(Kinds(ToWorker), bytearray(header), bytearray(8), None)


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_any_bytes(header: bytes, body: bytes) -> None:
    with pytest.raises(Broken):
        decode(Kinds(ToWorker), bytearray(header), bytearray(body), None)


@given(requests_of_tensors, st.data())
def test_any_byte_changed(requests: list[list[Tensor]], data: st.DataObject) -> None:
    whole = bytearray(b"".join(encode(Infer(7, "m", heads(requests), None), requests))[PREFIX.size :])
    header = len(whole) - sum(len(tensor.data) for request in requests for tensor in request)
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    with suppress(Broken):
        decode(Kinds(ToWorker), whole[:header], whole[header:], None)


def test_sizes_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sizes(bytearray(PREFIX.pack(3, messages.LARGEST_BODY))) == (3, messages.LARGEST_BODY)
    for header, body in ((messages.LARGEST_HEADER + 1, 0), (0, messages.LARGEST_BODY + 1)):
        with pytest.raises(Broken, match="cannot have"):
            sizes(bytearray(PREFIX.pack(header, body)))
    monkeypatch.setattr(messages, "LARGEST_BODY", 7)
    with pytest.raises(messages.TooMuch, match="may have 7"):
        encode(Unload("x"), [[Tensor("x", "FP32", (2,), bytes(8))]])
