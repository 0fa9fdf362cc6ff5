"""The model that a request names, whatever a client sends."""

from __future__ import annotations

import pytest

from carpool.serve.engines.requests import Asked
from carpool.serve.oip.errors import WrongInput

FORM = 'multipart/form-data; boundary="b"'


def form(*parts: str) -> bytes:
    return "".join(f"--b\r\n{part}\r\n" for part in parts).encode() + b"--b--\r\n"


def field(head: str, value: str) -> str:
    return f"Content-Disposition: form-data; {head}\r\n\r\n{value}"


@pytest.mark.parametrize(
    "other", ['name="model_kind"', 'name="modelling"', 'name="file"; filename="a; name=model"', "name=models"]
)
def test_only_the_field_of_that_name_counts(other: str) -> None:
    body = form(field(other, "no"), field("name=model", "yes"))
    asked = Asked.of(body, FORM)
    assert asked.model == "yes"
    assert asked.renamed("whisper") == form(field(other, "no"), field("name=model", "whisper"))


def test_a_boundary_in_other_letters() -> None:
    body = "preamble\r\n" + form("X-More: 1\r\n" + field('name="model"', "one")).decode()
    assert Asked.of(body.encode(), "Multipart/Form-Data; Boundary=b ; x=y").model == "one"


@pytest.mark.parametrize(
    "body",
    [
        b"--b\r\ncontent-disposition:;name=model\r\n" * 50_000,
        b"--b\r\ncontent-disposition:" + b';a="' * 500_001 + b"\r\n\r\n\r\n--b--",
        b"--b\r\n\r\n" * 200_000,
        b"--b",
        b"",
    ],
)
def test_a_form_is_read_in_linear_time(body: bytes) -> None:
    with pytest.raises(WrongInput, match="has no field"):
        Asked.of(body, FORM)


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (b'{"model": "\xff"}', ""),
        (b'{"model": "one", "\xff": 1}', ""),
        (b'{"model": "one", "\\ud800": 1}', ""),
        (b'\xef\xbb\xbf{"model": "one"}', ""),
        (b'{"model": "one", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", ""),
        (b"", "multipart/form-data; boundary=\udcff"),
        (b"", "multipart/form-data"),
    ],
)
def test_what_cannot_be_read_is_the_clients_mistake(body: bytes, media: str) -> None:
    with pytest.raises(WrongInput):
        Asked.of(body, media)
