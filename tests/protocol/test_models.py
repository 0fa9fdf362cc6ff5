"""What a model's name, factory and file of weights look like; and what the messages are as JSON."""

from __future__ import annotations

from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.protocol.models import (
    LONGEST_NAME,
    LONGEST_REASON,
    ModelRequest,
    ModelState,
    check_factory,
    check_name,
    check_weights,
    unavailable,
)


@pytest.mark.parametrize("name", ["a", "7", "resnet-152", "bert_base.v2", "A" * LONGEST_NAME])
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "_a", "a/b", "a b", "a\n", "é", "a?", "a%2f"])
def test_bad_names(name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        check_name(name)


def test_names_have_a_length() -> None:
    with pytest.raises(ValueError, match=f"has {LONGEST_NAME + 1} characters; it may have {LONGEST_NAME}"):
        check_name("A" * (LONGEST_NAME + 1))


@given(st.text(max_size=8))
def test_a_name_needs_no_quoting_in_an_address(text: str) -> None:
    try:
        name = check_name(text)
    except ValueError:
        return
    assert quote(name, safe="") == name
    assert name not in (".", "..")


@pytest.mark.parametrize("factory", ["m:f", "shop.models:resnet", "_a._b:_c"])
def test_good_factories(factory: str) -> None:
    assert check_factory(factory) == factory


@pytest.mark.parametrize(
    "factory", ["", "m", ":f", "m:", "m:f:g", "m.:f", ".m:f", "m:f.g", "m:f()", "./m.py:f", "m :f"]
)
def test_bad_factories(factory: str) -> None:
    with pytest.raises(ValueError, match="write module:function"):
        check_factory(factory)


def test_files_of_weights() -> None:
    for name in ("/w/a.safetensors", "model.safetensors.index.json"):
        assert check_weights(name) == name
    for name in ("", "a.bin", "a.safetensors.gz", "a.json"):
        with pytest.raises(ValueError, match=r"must end in \.safetensors or \.safetensors\.index\.json"):
            check_weights(name)


def test_defaults_are_not_sent_and_unknown_fields_are_refused() -> None:
    request = ModelRequest("m:f", "/bin/python", "/", {"A": "b"})
    text = msgspec.json.encode(request)
    assert set(msgspec.json.decode(text)) == {"factory", "python", "cwd", "env"}
    assert msgspec.json.decode(text, type=ModelRequest) == request
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(text[:-1] + b',"gpus":1}', type=ModelRequest)


def test_a_reason_of_any_text_can_be_sent() -> None:
    assert unavailable("short").reason == "short"
    for text in ("x" * (LONGEST_REASON + 1), "\udcff" * LONGEST_REASON):
        state = unavailable(text)
        assert msgspec.json.decode(msgspec.json.encode(state), type=ModelState) == state
        assert len(state.reason) == LONGEST_REASON and state.reason.endswith("...")
