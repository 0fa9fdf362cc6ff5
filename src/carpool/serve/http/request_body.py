"""Bodies that clients have compressed.  Pure."""

from __future__ import annotations

import zlib

from carpool.serve.oip.errors import BodyTooLarge, WrongEncoding, WrongInput

#: For `zlib`: the format and the size of the window.  Deflate in HTTP is the format of zlib (RFC 9110, 8.4.1.2).
WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


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
