"""Bodies of requests: bounded in size, in the time that a client takes, and all together in memory."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass

from aiohttp import StreamReader, web

from carpool.serve.oip.errors import BodyTooLarge, BodyTooSlow, ServerBusy, WrongEncoding, WrongInput
from carpool.serve.oip.messages import LENGTH_HEADER

#: For `zlib`: the format and the size of the window.  Deflate in HTTP is the format of zlib (RFC 9110, 8.4.1.2).
WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
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
        self._check(request.content_length or 0)
        try:
            sent = await self._pieces(request.content)
        except web.RequestPayloadError as error:
            raise WrongInput(f"the body cannot be read: {error}") from None
        except TimeoutError:
            raise BodyTooSlow(f"nothing of the body has come for {self._bodies.patience_s:g} s") from None
        body = self._decompressed(sent, ", ".join(request.headers.getall("Content-Encoding", ())))
        if body is not sent:
            self.count(len(sent) + len(body))
        return body

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

    def _decompressed(self, sent: bytes, encoding: str) -> bytes:
        """Decompress a body that is held, into no more bytes than all bodies leave."""
        room = max(0, self._bodies.most - self._bodies.held)  # what cannot be refused may have taken more
        try:
            return decompressed(sent, encoding, min(room, self._bodies.largest))
        except BodyTooLarge:
            if room < self._bodies.largest:
                raise self._busy() from None
            raise

    def _check(self, size: int) -> None:
        bodies = self._bodies
        if size > bodies.largest:
            raise BodyTooLarge(f"the body has more than {bodies.largest} bytes")
        if bodies.held + size - self._size > bodies.most:
            raise self._busy()

    def _busy(self) -> ServerBusy:
        text = f"the bodies of all requests have {self._bodies.most} bytes, which is the limit"
        return ServerBusy(text, RETRY_AFTER_S)


async def may_send(request: web.Request) -> bool:
    """Let a client send its body; false: its header Expect asks for something else.

    aiohttp's own handler fails on a header that is not text.
    """
    if request.headers["Expect"].lower() != "100-continue":
        return False
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # as if nothing had been sent yet
    return True


def header_bytes(request: web.Request) -> int | None:
    """Return the length of the JSON, if binary data follows it; else None.  Raises WrongInput."""
    text = request.headers.get(LENGTH_HEADER)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise WrongInput(f"{LENGTH_HEADER} is {text!r}; it must be a number of bytes")
    return int(text)


def decompressed(body: bytes, encoding: str, largest: int) -> bytes:
    """Decompress a body as the header ``encoding`` says.

    Raises WrongEncoding, WrongInput, BodyTooLarge (more than ``largest`` bytes).
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in WINDOWS:
        raise WrongEncoding(f"Content-Encoding is {encoding!r}; known: identity, {', '.join(WINDOWS)}")
    stream = zlib.decompressobj(WINDOWS[name])
    try:
        data = stream.decompress(body, largest + 1)
    except zlib.error as error:
        raise WrongInput(f"the body is not compressed by {name}: {error}") from None
    if len(data) > largest:
        raise BodyTooLarge(f"the body has more than {largest} bytes when it is decompressed")
    if not stream.eof or stream.unused_data:
        raise WrongInput(f"the body, compressed by {name}, {'goes on after' if stream.eof else 'stops before'} its end")
    return data
