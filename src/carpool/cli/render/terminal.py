"""What `rich` does for `Output`, on terminals: this module is imported when it is needed, because that takes time."""

from __future__ import annotations

import io
import re
from collections.abc import ItemsView, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from carpool.cli.render.columns import GAP, Rows, TableColumn, TableLayout

__all__ = ["Grid", "cell_len", "console", "wrap"]

INDENT = 4  # cells, of what is written beneath a row
_BLANKS = re.compile(r" +((?:\x1b\[0m)?)$")


def console(width: int, colours: bool) -> Console:
    """A console that writes into memory; users' texts are never markup, and nothing is asked of the environment."""
    return Console(
        color_system="standard" if colours else None, no_color=False, force_terminal=True, width=width,
        file=io.StringIO(), markup=False, emoji=False, highlight=False, legacy_windows=False,
    )  # fmt: skip


def wrap(console: Console, text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells, broken between words where that is possible."""
    return [line.plain.rstrip() for line in Text(text).wrap(console, width)] or [""]


class Grid:
    """Rows of a table, laid out; all are added by one call of `blocks`."""

    def __init__(self, width: int, colours: bool, columns: Sequence[TableColumn], layout: TableLayout) -> None:
        # The widths are those of the layout: with room for a gap more, `rich` has no reason to shrink any.
        self._console, self._width, self._layout = console(width + GAP, colours), width, layout
        self._prose = next((n for n in layout.widths if columns[n].prose), None)
        self._table = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
        for n, width in layout.widths.items():
            right = "right" if columns[n].right else "left"
            self._table.add_column(width=width, no_wrap=n != self._prose, justify=right, overflow="ellipsis")  # type: ignore[arg-type]

    def blocks(self, rows: Rows, styles: Sequence[str]) -> list[list[str]]:
        """The lines of each row."""
        heights, beneath = [], []
        for row, style in zip(rows, styles, strict=True):
            cells = self._cells(row)
            self._table.add_row(*(Text(cell, end="") for cell in cells), style=style)
            heights.append(max(cell.count("\n") for cell in cells) + 1)
            beneath.append([Text(" " * INDENT + line, style=style) for line in self._beneath(row)])
        lines = iter(self._text(self._table))
        return [
            [next(lines) for _ in range(height)] + [line for text in below for line in self._text(text)]
            for height, below in zip(heights, beneath, strict=True)
        ]

    def _cells(self, row: Sequence[str]) -> list[str]:
        return ["\n".join(wrap(self._console, row[n], w)) if n == self._prose else row[n] for n, w in self._widths()]

    def _beneath(self, row: Sequence[str]) -> list[str]:
        n = self._layout.beneath
        return [] if n is None or not row[n] else wrap(self._console, row[n], self._width - INDENT)

    def _widths(self) -> ItemsView[int, int]:
        return self._layout.widths.items()

    def _text(self, what: RenderableType) -> list[str]:
        self._console.file = io.StringIO()
        # Cells of one style become one piece: colours are switched on once for a line, not for each cell.
        self._console.print(Segments(Segment.simplify(self._console.render(what))), end="")
        return [_BLANKS.sub(r"\1", line) for line in self._console.file.getvalue().rstrip("\n").split("\n")]
