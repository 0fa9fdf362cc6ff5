"""Errors in a trace, with texts that help to correct them."""

from __future__ import annotations

from pathlib import Path

_SHOWN = 40  # characters of a bad cell that a message repeats


class TraceError(ValueError):
    """The message names the file, the line if there is one, what is wrong, and what to do."""

    @classmethod
    def at(cls, path: Path, place: str, text: str) -> TraceError:
        """Make an error.  ``place`` is "line 17", "job 3" or empty for the file as a whole."""
        return cls(f"{path}, {place}: {text}" if place else f"{path}: {text}")


def quoted(cell: object) -> str:
    """Return a value as a message shows it: on one line, and shortened."""
    text = str(cell).encode("unicode_escape").decode()
    return f'"{text[:_SHOWN]}..."' if len(text) > _SHOWN else f'"{text}"'
