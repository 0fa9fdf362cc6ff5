"""Records come back as they were; whatever else comes is `Malformed`, and says where."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.protocol.records import Kinds, Malformed, Range, decode, encode, encode_tagged


@dataclass(frozen=True, slots=True)
class Leaf:
    size: Annotated[int, Range(0, 9)]
    text: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Tree:
    leaves: tuple[Leaf, ...]
    best: Leaf | None
    rows: tuple[tuple[int, ...], ...]
    colour: Literal["red", "green"]
    on: bool

    def __post_init__(self) -> None:
        if len(self.leaves) == 7:
            raise ValueError("seven leaves are too many")


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


BOTH = Kinds(Tree | Nothing)
LEAF = Leaf(3, "å\n", b"\0\xff")
TREE = Tree((LEAF, LEAF), None, ((1, -2), ()), "green", True)

leaves = st.builds(Leaf, st.integers(0, 9), st.text(), st.binary())
trees = st.builds(
    Tree,
    st.lists(leaves, max_size=3).map(tuple),
    st.none() | leaves,
    st.lists(st.lists(st.integers()).map(tuple)).map(tuple),
    st.sampled_from(["red", "green"]),
    st.booleans(),
)


@given(trees)
def test_records_come_back(tree: Tree) -> None:
    assert decode(encode(tree), Tree) == tree
    assert BOTH.decode(encode_tagged(tree)) == tree


def test_what_is_sent() -> None:
    assert encode(LEAF) == '{"size":3,"text":"å\\n","data":"AP8="}'.encode()
    assert encode_tagged(Nothing()) == b'{"type":"Nothing"}'
    assert BOTH.decode(b'{"type":"Nothing"}') == Nothing()
    with pytest.raises(UnicodeEncodeError):
        encode(Leaf(1, "\ud800", b""))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('"size":3', '"size":10', r"from 0 to 9, got 10 \(at \$\.leaves\[0\]\.size\)"),
        ('"size":3', '"size":true', r"expected int, got bool \(at \$\.leaves\[0\]\.size\)"),
        ('"size":3', '"size":3.0', "expected int, got float"),
        ('"size":3,', "", r"missing: size; unknown: none \(at \$\.leaves\[0\]\)"),
        ('"size":3', '"size":3,"more":1', "missing: none; unknown: more"),
        ('"AP8="', '"AP8"', r"expected base64.*\$\.leaves\[0\]\.data"),
        ('"AP8="', '"A P8="', "expected base64"),
        ('"å\\n"', '"\\ud800"', r"expected Unicode.*\$\.leaves\[0\]\.text"),
        ('"å\\n"', "7", "expected str, got int"),
        ("[1,-2]", '[1,"2"]', r"expected int, got str \(at \$\.rows\[0\]\[1\]\)"),
        ('"rows":', '"rows":{},"row":', "unknown: row"),
        ("[[1,-2],[]]", "{}", r"expected a list, got dict \(at \$\.rows\)"),
        ('"best":null', '"best":[]', r"expected Leaf, got list \(at \$\.best\)"),
        ('"green"', '"blue"', r"one of red, green, got 'blue' \(at \$\.colour\)"),
        ("true", "1", r"expected bool, got int \(at \$\.on\)"),
        ('"Tree"', '"Bush"', r"one of Tree, Nothing, got 'Bush' \(at \$\.type\)"),
        ('"type":"Tree",', "", "got None"),
        ('{"type"', '[{"type"', "no JSON"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_place(before: str, after: str, says: str) -> None:
    sent = encode_tagged(TREE).decode()
    assert before in sent
    with pytest.raises(Malformed, match=says):
        BOTH.decode(sent.replace(before, after, 1).encode())


@pytest.mark.parametrize("data", [b"", b"3", b"[]", b"\xff", b'{"type": []}', b"[" * 100_000, b"9" * 10_000])
def test_what_is_no_record_at_all(data: bytes) -> None:
    with pytest.raises(Malformed):
        BOTH.decode(data)
    with pytest.raises(Malformed):
        decode(data, Leaf)


def test_what_a_record_itself_refuses() -> None:
    sent = encode(Tree((), None, (), "red", False)).replace(b"[]", b"[" + b",".join([encode(LEAF)] * 7) + b"]", 1)
    with pytest.raises(Malformed, match="seven leaves are too many"):
        decode(sent, Tree)


@given(st.data())
def test_any_byte_changed(data: st.DataObject) -> None:
    sent = bytearray(encode_tagged(TREE))
    sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Malformed):
        assert isinstance(BOTH.decode(sent), Tree)
