"""The story of what a policy did wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ContractViolation(AssertionError):
    """A policy does what no policy may do."""


@contextmanager
def at(place: str) -> Iterator[None]:
    """Says where a violation within has happened."""
    try:
        yield
    except ContractViolation as error:
        raise ContractViolation(f"{place}: {error}") from error.__cause__


def require(truth: bool, what: str) -> None:
    """Raises ContractViolation, with ``what`` the policy did wrong, unless ``truth`` holds."""
    if not truth:
        raise ContractViolation(what)
