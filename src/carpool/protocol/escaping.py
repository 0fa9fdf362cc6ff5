"""Users' texts (names, commands, messages of programs) made safe for terminals and logs: no control characters."""

from __future__ import annotations


def escaped(text: str) -> str:
    r"""Return ``text`` as one line in which every character is visible.

    Other characters, such as ESC, newlines and changes of direction, become escapes as in Python.

    >>> print(escaped("red \x1b[31m\nnew line, right to left \u202e"))
    red \x1b[31m\nnew line, right to left \u202e
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
