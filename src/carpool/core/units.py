"""Figures for people: sizes and times in reasons."""

from __future__ import annotations

from carpool.core.model import GIB, MIB, Micros


def size(number: int) -> str:
    """Bytes as people read them: ``3.1 GiB``, ``256 MiB``, ``12 KiB``."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            figure = f"{number / unit:.1f}".removesuffix(".0")
            return f"{figure} {name}"
    return f"{number} B"


def seconds(time_us: Micros) -> str:
    """Microseconds as seconds with one digit: ``0.4 s``, ``75.0 s``."""
    return f"{time_us / 1e6:.1f} s"
