"""Numbers in cells, converted exactly: whole microseconds, bytes and millionths, never through a float."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

LARGEST = 1 << 60  # microseconds (36,000 years) or bytes (an EiB)

_NUMBER = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?\Z", re.ASCII)
_LONGEST = 60  # characters of a number
_SCALE = {3: 1_000, 6: 1_000_000}


class Unfit(ValueError):
    """The cell breaks the rule of its column; the text, if any, says more than the rule."""


def decimal(cell: str, digits: int) -> int:
    """Return the number times 10 ** digits, half a unit rounded up.  Raises Unfit."""
    if cell.isdecimal() and len(cell) < 12 and cell.isascii():
        return int(cell) * _SCALE[digits]  # the usual case, which is fast
    ones, _, fraction = cell.partition(".")
    if ones.isdecimal() and fraction.isdecimal() and len(ones) < 12 and cell.isascii():
        up = len(fraction) > digits and fraction[digits] >= "5"
        return int(ones + fraction[:digits].ljust(digits, "0")) + up
    return _exact(cell, _SCALE[digits])


def is_zero(cell: str) -> bool:
    """Whether a number that `decimal` accepts is exactly 0, not only rounded to it."""
    return not cell.lower().partition("e")[0].strip("+0. \t")


def mebibytes(cell: str) -> int:
    """Return bytes from a number of MiB; half a byte is rounded up.  Raises Unfit."""
    return _exact(cell, 1 << 20)


def whole(cell: str) -> int:
    """Return a whole number, which may be written as 4.0 or 1e3.  Raises Unfit."""
    if cell.isdecimal() and len(cell) < 12 and cell.isascii():
        return int(cell)
    return _whole(cell)


@lru_cache(maxsize=4096)
def _whole(cell: str) -> int:
    value = _fraction(cell)
    if value.denominator != 1:
        raise Unfit("not a whole number")
    return _bounded(value.numerator)


@lru_cache(maxsize=4096)  # such values repeat, and equal cells share one number
def _exact(cell: str, factor: int) -> int:
    value = _fraction(cell) * factor
    return _bounded((2 * value.numerator + value.denominator) // (2 * value.denominator))


def _fraction(cell: str) -> Fraction:
    text = cell.strip()
    if len(text) > _LONGEST or not _NUMBER.match(text):
        raise Unfit
    return Fraction(text)


def _bounded(value: int) -> int:
    if value > LARGEST:
        raise Unfit("too large")
    return value


def print_decimal(value: int, digits: int) -> str:
    """Format a number as the inverse of `decimal`, without trailing zeros."""
    whole_part, rest = divmod(value, 10**digits)
    return f"{whole_part}.{rest:0{digits}d}".rstrip("0").rstrip(".")


def print_mebibytes(value: int) -> str:
    """Format bytes as the inverse of `mebibytes`: seven decimals distinguish all bytes."""
    whole_part, rest = divmod(value, 1 << 20)
    return f"{whole_part}.{(rest * 10**7 + (1 << 19)) >> 20:07d}".rstrip("0").rstrip(".")
