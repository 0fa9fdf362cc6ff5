"""Suggestions for mistyped names."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 100  # of a word that was meant to be a name


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the beginning of a hint, with a space behind; empty if no name is near.

    >>> did_you_mean("fiar", ["fair", "fifo"]), did_you_mean("best", ["fair", "fifo"])
    ("did you mean 'fair'? ", '')
    """
    import difflib  # only wanted in messages

    near = difflib.get_close_matches(word, list(known), n=1) if len(word) <= LONGEST else []
    return f"did you mean {near[0]!r}? " if near else ""
