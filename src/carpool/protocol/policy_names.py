"""Names of policies: one of Carpool's, an announced one, ``package.module:Class``, or ``path.py:Class``."""

from __future__ import annotations

from carpool.protocol.paths import expanded


def split_name(name: str) -> tuple[str, str]:
    """Where a policy's class is, and what it is called there; the former is empty for a plain name.

    >>> split_name("srtf"), split_name("mine.py:Mine")
    (('', 'srtf'), ('mine.py', 'Mine'))
    """
    origin, _, attribute = name.rpartition(":")
    return origin, attribute


def absolute_name(name: str) -> str:
    """The same policy for a process with another working directory: a path is made absolute, without links."""
    origin, attribute = split_name(name)
    return f"{expanded(origin).resolve()}:{attribute}" if origin.endswith(".py") else name
