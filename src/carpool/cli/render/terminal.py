"""Layout by `rich` for `Output` on terminals; imported only when needed, because loading `rich` takes time."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from carpool.cli.render.columns import GAP, TableColumn, TableLayout

__all__ = ["Grid", "cell_len", "console", "wrap"]

INDENT = 4  # cells, of prose beneath a row


def console(width: int, colours: bool) -> Console:
    """Return a console that writes into memory; users' texts are never markup, and the environment has no influence."""
    return Console(
        color_system="standard" if colours else None, no_color=False, force_terminal=True, width=width,
        file=io.StringIO(), markup=False, emoji=False, highlight=False, legacy_windows=False,
    )  # fmt: skip


def wrap(console: Console, text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells, broken between words where that is possible."""
    return [line.plain.rstrip() for line in Text(text).wrap(console, width)] or [""]


class Grid:
    """Lays out rows of a table.  In `rich.table` a row takes half a millisecond, and `carpool top` has many rows."""

    def __init__(self, width: int, columns: Sequence[TableColumn], layout: TableLayout) -> None:
        self._console, self._width, self._layout = console(width, False), width, layout
        self._columns = [(n, cells, columns[n]) for n, cells in layout.widths.items()]

    def block(self, row: Sequence[str]) -> list[str]:
        """The lines of a row."""
        cells = [self._cell(row[n], width, column) for n, width, column in self._columns]
        lines = [self._line(cells, number) for number in range(max(map(len, cells)))]
        return lines + [" " * INDENT + line for line in self._beneath(row)]

    def _cell(self, text: str, width: int, column: TableColumn) -> list[str]:
        if column.prose:
            return self._wrapped(text, width)
        return [set_cell_size(text, width - 1) + "…" if cell_len(text) > width else text]

    def _line(self, cells: Sequence[Sequence[str]], number: int) -> str:
        """Return line ``number`` of a row; cells with fewer lines are blank there."""
        texts = (cell[number] if number < len(cell) else "" for cell in cells)
        padded = (_padded(text, width, column) for text, (_, width, column) in zip(texts, self._columns, strict=True))
        return (" " * GAP).join(padded).rstrip()

    def _beneath(self, row: Sequence[str]) -> list[str]:
        n = self._layout.beneath
        return [] if n is None or not row[n] else self._wrapped(row[n], self._width - INDENT)

    def _wrapped(self, text: str, width: int) -> list[str]:
        return [text.rstrip()] if cell_len(text) <= width else wrap(self._console, text, width)


def _padded(text: str, width: int, column: TableColumn) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if column.right else text + blanks
