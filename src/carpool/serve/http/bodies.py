"""Bodies of requests: bounded in size, in the time that a client takes, and all together in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import StreamReader, web

from carpool.serve.oip.errors import BodyTooLarge, BodyTooSlow, ServerBusy, WrongEncoding, WrongInput
from carpool.serve.oip.messages import LENGTH_HEADER

#: What aiohttp decompresses, and what is not compressed.
ENCODINGS = ("", "identity", "gzip", "deflate")
RETRY_AFTER_S = 1


@dataclass
class Bodies:
    """The bodies of all requests that are not answered.

    ``largest``: bytes of one, decompressed; ``most``: bytes of all; ``patience_s``: longest wait for the next bytes;
    ``held``: bytes at present.
    """

    largest: int
    most: int
    patience_s: float
    held: int = 0


class HeldBytes:
    """The bytes that one request holds, its body and then its answer, until the block ends."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._size = 0

    def __enter__(self) -> HeldBytes:
        return self

    def __exit__(self, *_: object) -> None:
        self.count(0)

    def count(self, size: int) -> None:
        """Set the number of bytes, which can no longer be refused."""
        self._bodies.held += size - self._size
        self._size = size

    async def read(self, request: web.Request) -> bytes:
        """Read a body.  Raises WrongInput, WrongEncoding, BodyTooLarge, BodyTooSlow, ServerBusy."""
        encoding = request.headers.get("Content-Encoding", "")
        if encoding.strip().lower() not in ENCODINGS:
            raise WrongEncoding(f"Content-Encoding is {encoding!r}; known: {', '.join(ENCODINGS[1:])}")
        self._check(request.content_length or 0)
        try:
            return await self._pieces(request.content)
        except web.RequestPayloadError as error:
            raise WrongInput(f"the body cannot be read: {error}") from None
        except TimeoutError:
            raise BodyTooSlow(f"nothing of the body has come for {self._bodies.patience_s:g} s") from None

    async def _pieces(self, content: StreamReader) -> bytes:
        body = bytearray()
        while piece := await self._piece(content):
            self._check(len(body) + len(piece))
            self.count(len(body) + len(piece))
            body += piece
        return bytes(body)

    async def _piece(self, content: StreamReader) -> bytes:
        async with asyncio.timeout(self._bodies.patience_s):
            return await content.readany()

    def _check(self, size: int) -> None:
        bodies = self._bodies
        if size > bodies.largest:
            raise BodyTooLarge(f"the body has more than {bodies.largest} bytes")
        if bodies.held + size - self._size > bodies.most:
            raise ServerBusy(f"the bodies of all requests have {bodies.most} bytes, which is the limit", RETRY_AFTER_S)


async def expected(request: web.Request) -> web.StreamResponse | None:
    """Answer the header Expect; aiohttp's own handler fails on a header that is not text."""
    if request.headers["Expect"].lower() != "100-continue":
        return web.json_response({"error": "the header Expect may only be `100-continue`"}, status=417)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # as if nothing had been sent yet
    return None


def header_bytes(request: web.Request) -> int | None:
    """Return the length of the JSON, if binary data follows it; else None.  Raises WrongInput."""
    text = request.headers.get(LENGTH_HEADER)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise WrongInput(f"{LENGTH_HEADER} is {text!r}; it must be a number of bytes")
    return int(text)
