"""The error that says what a policy did wrong, and where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ContractViolation(AssertionError):
    """A policy breaks the contract of policies."""


@contextmanager
def at(place: str) -> Iterator[None]:
    """Prefix the text of a violation raised inside the block with ``place``."""
    try:
        yield
    except ContractViolation as error:
        raise ContractViolation(f"{place}: {error}") from error.__cause__


def require(truth: bool, what: str) -> None:
    """Raise ContractViolation, with ``what`` the policy did wrong, unless ``truth`` holds."""
    if not truth:
        raise ContractViolation(what)
