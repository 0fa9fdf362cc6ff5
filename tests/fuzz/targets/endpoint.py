"""The endpoint: requests as bytes on a socket, their bodies, and the tensors in them."""

from __future__ import annotations

import functools
import logging
import socket
from contextlib import suppress

from carpool.serve.engines.requests import Asked
from carpool.serve.http.bodies import decompressed
from carpool.serve.oip.codec import decode_request, encode_request
from carpool.serve.oip.errors import BodyTooLarge, WrongEncoding, WrongInput
from carpool.serve.oip.values import ModelMetadata, TensorSpec
from tests.serve.backend import NumpyBackend
from tests.serve.conftest import OPTIONS, Server

MODEL = ModelMetadata(
    "m",
    (TensorSpec("x", "FP32", (-1, 2)), TensorSpec("s", "BYTES", (-1,)), TensorSpec("b", "BOOL", (-1, -1))),
    (TensorSpec("y", "FP32", (-1,)),),
)
LARGEST = 1 << 20
WAIT_S = 20.0


def tensors(data: bytes) -> None:
    """The first two bytes say how much of the rest is JSON; 0: all of it."""
    length = int.from_bytes(data[:2], "little")
    with suppress(WrongInput):
        asked = decode_request(MODEL, data[2:], length or None)
        message = encode_request(asked.inputs)
        again = decode_request(MODEL, message.body, message.header_bytes)
        assert [bytes(one.data) for one in again.inputs] == [bytes(one.data) for one in asked.inputs]
        assert [one.shape for one in again.inputs] == [one.shape for one in asked.inputs]


def model(data: bytes) -> None:
    """The first byte says whether the rest is a form; the name of a model that was found can be another."""
    media = 'multipart/form-data; boundary="b"' if data[:1] < b"\x80" else "application/json"
    with suppress(WrongInput):
        asked = Asked.of(data[1:], media)
        assert Asked.of(asked.renamed("another"), media).model == "another"


def body(data: bytes) -> None:
    """Decompress all but the first byte, which chooses the encoding."""
    names = ("gzip", "deflate", "identity", "br")
    with suppress(WrongInput, WrongEncoding, BodyTooLarge):
        assert len(decompressed(data[1:], names[data[0] % 4] if data else "", LARGEST)) <= LARGEST


class _Errors(logging.Handler):
    """What the server calls an error of its own: a traceback in its log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))


_ERRORS = _Errors()
_LOGGERS = ("carpool", "aiohttp", "asyncio")


@functools.cache
def server() -> Server:
    """One for all requests of a run; `stop` ends it."""
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(_ERRORS)
    return Server(NumpyBackend(), OPTIONS)


def stop() -> None:
    """Nothing happens if no request was made."""
    if server.cache_info().currsize:
        server().close()
        server.cache_clear()
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(_ERRORS)


def request(data: bytes) -> None:
    """An answer that is not about an error of the server's own, or none; afterwards the server answers others."""
    first = _asked(data, goes_on=False).partition(b"\r\n")[0]
    assert not first.startswith(b"HTTP/1.1 500"), first
    live = _asked(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", goes_on=True)
    assert live.startswith(b"HTTP/1.1 200"), live
    found, _ERRORS.seen = _ERRORS.seen, []
    assert not found, found


def _asked(data: bytes, *, goes_on: bool) -> bytes:
    """``goes_on``: the client does not say that nothing more comes."""
    host, _, port = server().address.rpartition(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection, suppress(ConnectionError):
        connection.sendall(data)
        if not goes_on:
            connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(65536):
            answer += piece
    return answer
