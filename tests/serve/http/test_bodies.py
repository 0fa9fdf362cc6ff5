"""Compressed bodies, what claims to be one, and how much memory one may take."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from unittest import mock

import pytest
from aiohttp import StreamReader
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from carpool.serve.http.bodies import Bodies, HeldBytes, decompressed
from carpool.serve.oip.errors import BodyTooLarge, ServerBusy, WrongEncoding, WrongInput

BODY = b'{"inputs": []}'
COMPRESSED = {"gzip": gzip.compress(BODY, mtime=0), "deflate": zlib.compress(BODY)}
MIB = 1 << 20
BOMB = gzip.compress(bytes(64 * MIB))


@pytest.mark.parametrize("encoding", ["", "identity", " Identity"])
def test_a_body_that_is_not_compressed(encoding: str) -> None:
    assert decompressed(BODY, encoding, len(BODY)) is BODY


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_a_whole_body_and_letters_of_any_case(encoding: str) -> None:
    body = COMPRESSED[encoding]
    assert [decompressed(body, name, 100) for name in (encoding, encoding.upper(), f" {encoding}\t")] == [BODY] * 3


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_the_limit_is_that_of_the_result(encoding: str) -> None:
    assert decompressed(COMPRESSED[encoding], encoding, len(BODY)) == BODY
    with pytest.raises(BodyTooLarge, match="more than 13 bytes"):
        decompressed(COMPRESSED[encoding], encoding, len(BODY) - 1)


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_a_body_that_is_cut_anywhere(encoding: str) -> None:
    body = COMPRESSED[encoding]
    for length in range(len(body)):
        with pytest.raises(WrongInput, match=f"compressed by {encoding}, stops before its end"):
            decompressed(body[:length], encoding, 100)


@pytest.mark.parametrize("encoding", COMPRESSED)
@pytest.mark.parametrize("more", [b"x", b"\0", BODY, *COMPRESSED.values()], ids=["x", "0", "plain", *COMPRESSED])
def test_more_bytes_after_the_end(encoding: str, more: bytes) -> None:
    """One more member, too."""
    with pytest.raises(WrongInput, match=f"compressed by {encoding}, goes on after its end"):
        decompressed(COMPRESSED[encoding] + more, encoding, 100)


def test_deflate_without_the_head_of_zlib_is_refused() -> None:
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    with pytest.raises(WrongInput, match="is not compressed by deflate"):
        decompressed(raw.compress(BODY) + raw.flush(), "deflate", 100)


@pytest.mark.parametrize(("encoding", "other"), [("gzip", "deflate"), ("deflate", "gzip")])
def test_a_body_that_is_compressed_otherwise(encoding: str, other: str) -> None:
    for body in (COMPRESSED[other], BODY):
        with pytest.raises(WrongInput, match=f"is not compressed by {encoding}"):
            decompressed(body, encoding, 100)


@pytest.mark.parametrize("place", [-1, -5])
def test_a_wrong_checksum_or_length(place: int) -> None:
    body = bytearray(COMPRESSED["gzip"])
    body[place] ^= 1
    with pytest.raises(WrongInput, match="is not compressed by gzip"):
        decompressed(bytes(body), "gzip", 100)


@pytest.mark.parametrize("encoding", ["br", "zstd", "x", "gzip, gzip", "identity, gzip", "deflate,"])
def test_unknown_and_several_encodings(encoding: str) -> None:
    with pytest.raises(WrongEncoding, match="known: identity, gzip, deflate"):
        decompressed(COMPRESSED["gzip"], encoding, 100)


# A request


def read(body: bytes, bodies: Bodies, *encodings: str, others: int = 0) -> bytes:
    """Return the body of a request with these headers.  ``others``: bytes that other requests take before its end."""

    async def read() -> bytes:
        content = StreamReader(mock.Mock(_reading_paused=False), MIB, loop=asyncio.get_running_loop())
        headers = CIMultiDict([("content-ENCODING", encoding) for encoding in encodings])
        with HeldBytes(bodies) as held:
            reading = asyncio.create_task(held.read(make_mocked_request("POST", "/", headers, payload=content)))
            content.feed_data(body)
            await asyncio.sleep(0)
            bodies.held += others
            content.feed_eof()
            return await reading

    return asyncio.run(read())


def test_the_header_of_a_request_in_any_case() -> None:
    assert read(COMPRESSED["gzip"], Bodies(100, 100, 1), "GZip") == BODY


@pytest.mark.parametrize("encodings", [("gzip", "gzip"), ("identity", "gzip"), ("gzip", "br")])
def test_several_headers_are_several_encodings(encodings: tuple[str, str]) -> None:
    with pytest.raises(WrongEncoding, match=f"is '{', '.join(encodings)}'"):
        read(COMPRESSED["gzip"], Bodies(100, 100, 1), *encodings)


def peak_of_bomb(bodies: Bodies, error: type[Exception], others: int = 0) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(error):
            read(BOMB, bodies, "gzip", others=others)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("largest", "held", "others", "error", "most"),
    [(2, 0, 0, BodyTooLarge, 6), (64, 62, 0, ServerBusy, 6), (64, 0, 65, ServerBusy, 1)],
    ids=["one body may", "the other bodies leave", "is left beyond the limit"],
)
def test_a_bomb_takes_no_more_than(largest: int, held: int, others: int, error: type[Exception], most: int) -> None:
    """In MiB."""
    bodies = Bodies(largest=largest * MIB, most=64 * MIB, patience_s=1, held=held * MIB)
    assert peak_of_bomb(bodies, error, others=others * MIB) < most * MIB
    assert bodies.held == (held + others) * MIB
