"""Output of jobs for a terminal: control characters other than ends of lines and tabs become escapes."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator

from carpool.protocol.escaping import escaped

_WITHIN_LINES = re.compile(r"[^\t\n]+")


def visible_pieces(pieces: Iterable[bytes]) -> Iterator[str]:
    r"""Yield the text with characters that are not printable as escapes; a character may lie in two pieces.

    A return to the beginning of a line (``\r``, as of progress bars) begins a new line.
    """
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    for piece in pieces:
        yield _visible(decoder.decode(piece))
    yield _visible(decoder.decode(b"", final=True))


def _visible(text: str) -> str:
    return _WITHIN_LINES.sub(lambda found: escaped(found[0]), text)
