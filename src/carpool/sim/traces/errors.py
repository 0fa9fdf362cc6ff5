"""What is wrong with a trace, said so that it can be mended."""

from __future__ import annotations

from pathlib import Path

_SHOWN = 40  # characters of a bad cell that a message repeats


class TraceError(ValueError):
    """The message names the file, the line where there is one, what is wrong, and what to do."""

    @classmethod
    def at(cls, path: Path, place: str, text: str) -> TraceError:
        """``place`` is "line 17", "job 3" or empty for the file as a whole."""
        return cls(f"{path}, {place}: {text}" if place else f"{path}: {text}")


def quoted(cell: object) -> str:
    """A value as a message shows it: on one line, and not endless."""
    text = str(cell).encode("unicode_escape").decode()
    return f'"{text[:_SHOWN]}..."' if len(text) > _SHOWN else f'"{text}"'
