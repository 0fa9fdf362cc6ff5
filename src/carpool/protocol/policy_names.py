"""Names of policies: one of Carpool's, an announced one, ``package.module:Class``, or ``path.py:Class``."""

from __future__ import annotations

from carpool.protocol.paths import expanded


def split_name(name: str) -> tuple[str, str]:
    """Return the origin of a policy's class and the name of the class; the origin is empty for a plain name.

    >>> split_name("srtf"), split_name("mine.py:Mine")
    (('', 'srtf'), ('mine.py', 'Mine'))
    """
    origin, _, attribute = name.rpartition(":")
    return origin, attribute


def absolute_name(name: str) -> str:
    """Return the policy's name for a process with another working directory: its path made absolute, without links."""
    origin, attribute = split_name(name)
    return f"{expanded(origin).resolve()}:{attribute}" if origin.endswith(".py") else name
