"""What a model's name, factory and file of weights look like; and what the messages are as JSON."""

from __future__ import annotations

from collections.abc import Callable
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

NAMES = ["a", "7", "resnet-152", "bert_base.v2", "A" * LONGEST_NAME]
FACTORIES = ["m:f", "shop.models:resnet", "_a._b:_c"]
WEIGHTS = ["/w/a.safetensors", "model.safetensors.index.json"]
#: What checks it, what it says, and texts that it refuses.
REFUSED = [
    (check_name, "letters, digits", ["", ".", "..", "-a", "_a", "a/b", "a b", "a\n", "é", "a?", "a%2f"]),
    (check_name, f"has {LONGEST_NAME + 1} characters; it may have {LONGEST_NAME}", ["A" * (LONGEST_NAME + 1)]),
    (check_factory, "write module:function", ["", "m", ":f", "m:", "m:f:g", "m.:f", ".m:f", "m:f.g", "m:f()"]),
    (check_factory, "write module:function", ["./m.py:f", "m :f"]),
    (check_weights, r"must end in \.safetensors or", ["", "a.bin", "a.safetensors.gz", "a.json"]),
]


@pytest.mark.parametrize(
    ("check", "text"),
    [*((check_name, name) for name in NAMES), *((check_factory, one) for one in FACTORIES)]
    + [(check_weights, path) for path in WEIGHTS],
)
def test_what_is_as_it_must_be(check: Callable[[str], str], text: str) -> None:
    assert check(text) == text


@pytest.mark.parametrize(
    ("check", "why", "text"), [(check, why, text) for check, why, all_ in REFUSED for text in all_]
)
def test_what_is_not_is_refused(check: Callable[[str], str], why: str, text: str) -> None:
    with pytest.raises(ValueError, match=why):
        check(text)


@given(st.text(max_size=8))
def test_a_name_needs_no_quoting_in_an_address(text: str) -> None:
    try:
        name = check_name(text)
    except ValueError:
        return
    assert quote(name, safe="") == name
    assert name not in (".", "..")


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
