"""CSV with the line ends of Unix."""

from __future__ import annotations

from typing import TextIO


class PlainLines:
    """Ends lines with a newline.

    csv.writer must end them with CR and LF, because only then it quotes both in cells.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str) -> None:
        self._file.write(line.removesuffix("\r\n") + "\n")
