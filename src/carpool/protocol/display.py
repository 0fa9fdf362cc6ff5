"""Users' texts and accounts as people see them: no control characters in terminals and logs, names in place of uids."""

from __future__ import annotations

from functools import lru_cache


def escaped(text: str) -> str:
    r"""Return ``text`` as one line in which every character is visible.

    Other characters, such as ESC, newlines and changes of direction, become escapes as in Python.

    >>> print(escaped("red \x1b[31m\nnew line, right to left \u202e"))
    red \x1b[31m\nnew line, right to left \u202e
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """Return the name of an account; the number if there is no such account."""
    import pwd  # only needed in messages

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
