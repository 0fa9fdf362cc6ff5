"""Bodies of requests, read piece by piece within a budget, and the headers that determine how to read them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import StreamReader, web

from carpool.serve.http.body_budget import HeldBytes
from carpool.serve.http.request_body import decompressed
from carpool.serve.oip.errors import BodyTooLarge, BodyTooSlow, WrongInput
from carpool.serve.oip.messages import LENGTH_HEADER


@dataclass(frozen=True, slots=True)
class BodyReader:
    """``largest``: bytes of one body, also after decompression; ``patience_s``: longest wait for the next bytes."""

    largest: int
    patience_s: float

    async def read(self, request: web.Request, held: HeldBytes) -> bytes:
        """Read and decompress a body.  Raises WrongInput, WrongEncoding, BodyTooLarge, BodyTooSlow, ServerBusy."""
        self._check(request.content_length or 0)
        try:
            sent = await self._pieces(request.content, held)
        except web.RequestPayloadError as error:
            raise WrongInput(f"the body cannot be read: {error}") from None
        except TimeoutError:
            raise BodyTooSlow(f"nothing of the body has come for {self.patience_s:g} s") from None
        body = decompressed(sent, request.headers.get("Content-Encoding", ""), self.largest)
        if body is not sent:
            held.resize(len(sent) + len(body))
        return body

    async def _pieces(self, content: StreamReader, held: HeldBytes) -> bytes:
        body = bytearray()
        while piece := await self._piece(content):
            self._check(len(body) + len(piece))
            held.resize(len(body) + len(piece))
            body += piece
        return bytes(body)

    async def _piece(self, content: StreamReader) -> bytes:
        async with asyncio.timeout(self.patience_s):
            return await content.readany()

    def _check(self, size: int) -> None:
        if size > self.largest:
            raise BodyTooLarge(f"the body has more than {self.largest} bytes")


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
