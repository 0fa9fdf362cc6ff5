"""Compressed bodies, and what claims to be one."""

from __future__ import annotations

import gzip
import zlib

import pytest

from carpool.serve.http.request_body import decompressed
from carpool.serve.oip.errors import BodyTooLarge, WrongEncoding, WrongInput

BODY = b'{"inputs": []}'
COMPRESSED = {"gzip": gzip.compress(BODY), "deflate": zlib.compress(BODY)}


@pytest.mark.parametrize("encoding", ["", "identity", " Identity"])
def test_bodies_as_they_are(encoding: str) -> None:
    assert decompressed(BODY, encoding, len(BODY)) == BODY


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_compressed_bodies_have_the_limit_of_what_is_in_them(encoding: str) -> None:
    assert decompressed(COMPRESSED[encoding], encoding.upper(), len(BODY)) == BODY
    with pytest.raises(BodyTooLarge, match="more than 13 bytes"):
        decompressed(COMPRESSED[encoding], encoding, len(BODY) - 1)


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_the_end_has_to_be_there_and_nothing_behind_it(encoding: str) -> None:
    body = COMPRESSED[encoding]
    with pytest.raises(WrongInput, match="stops before its end"):
        decompressed(body[:-1], encoding, 100)
    with pytest.raises(WrongInput, match="stops before its end"):
        decompressed(b"", encoding, 100)
    with pytest.raises(WrongInput, match="goes on after its end"):
        decompressed(body + b"x", encoding, 100)
    with pytest.raises(WrongInput, match=f"is not compressed by {encoding}"):
        decompressed(b"plain text", encoding, 100)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
def test_an_unknown_encoding(encoding: str) -> None:
    with pytest.raises(WrongEncoding, match="known: identity, gzip, deflate"):
        decompressed(BODY, encoding, 100)
