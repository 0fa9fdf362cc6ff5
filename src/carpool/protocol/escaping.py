"""Texts of users (names, commands, messages of programs) for terminals and logs, where control characters do things."""

from __future__ import annotations


def escaped(text: str) -> str:
    r"""One line in which every character can be seen: others, such as ESC, newlines and changes of direction, become
    escapes as in Python.

    >>> print(escaped("red \x1b[31m\nnew line, right to left \u202e"))
    red \x1b[31m\nnew line, right to left \u202e
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
