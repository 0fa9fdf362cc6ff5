"""A few shapes as SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

STYLE = "text{font:13px system-ui,sans-serif;fill:#222}.title{font-weight:600;font-size:15px}.dim{fill:#666}"
BLUE, ORANGE, RED, GREEN, GREY = "#4269d0", "#efb118", "#d62728", "#3ca951", "#d8dbe2"


def document(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """A picture on white ground; viewers say its title."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    ground = f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([f'{head} role="img">', f"<title>{escape(title)}</title>", ground, *parts, "</svg>", ""])


def page(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """A picture with its title above."""
    return document(width, height, title, [text(20, 26, title, "title"), *parts])


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>'


def rectangle(x: float, y: float, width: float, height: float, colour: str, label: str = "") -> str:
    """``label``: what viewers say of it."""
    box = f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(width, 0.3):.2f}" height="{height:.1f}" fill="{colour}"'
    return f"{box}><title>{escape(label)}</title></rect>" if label else f"{box}/>"


def line(points: Sequence[tuple[float, float]], colour: str, dashes: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'


def dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'


def legend(x: float, y: float, entries: Sequence[tuple[str, str]]) -> list[str]:
    """(colour, words), side by side."""
    parts = []
    for colour, words in entries:
        parts += [rectangle(x, y - 11, 12, 12, colour), text(x + 18, y, words)]
        x += 40 + 7.2 * len(words)
    return parts
