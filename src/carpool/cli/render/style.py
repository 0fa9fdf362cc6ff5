"""Colours, only where they can be seen and are wanted: on a terminal, without NO_COLOR, not with TERM=dumb."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Style:
    """Paints text with ANSI sequences, or leaves it as it is where colours are not ``enabled``."""

    enabled: bool

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled and text else text

    def red(self, text: str) -> str:
        return self._paint("31", text)

    def green(self, text: str) -> str:
        return self._paint("32", text)

    def dim(self, text: str) -> str:
        return self._paint("2", text)

    def bold(self, text: str) -> str:
        return self._paint("1", text)


def style_for(stream: TextIO) -> Style:
    """Colours for a stream, if it is a terminal and the environment does not forbid them."""
    # https://no-color.org: present and not empty means no colour, whatever the value.
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(wanted and stream.isatty())


def stdout_style() -> Style:
    """Colours for standard output, as it is now."""
    return style_for(sys.stdout)


def stderr_style() -> Style:
    """Colours for standard error, as it is now."""
    return style_for(sys.stderr)
