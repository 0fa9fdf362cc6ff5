"""Text on a stream: colours, tables, wrapped lines.  Only output to a terminal needs `rich`.

A pipe gets plain lines: nothing shortened or wrapped, and no time lost with loading `rich`.  Columns without content
are left out everywhere.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from carpool.cli.render.columns import GAP, Rows, TableColumn, fit, present
from carpool.protocol.display import escaped

#: Larger tables are written as into a pipe, also on a terminal: ten thousand rows would take half a second.
LARGEST = 1000
HANGING = 2  # cells by which a line's continuation is indented
#: The terminal's own colours, which its user has chosen for a light or a dark background; never a background.
STYLES = ("bold", "dim", "green", "red")


@dataclass(frozen=True, slots=True)
class Output:
    """A stream for text.  ``width``: cells of the terminal; None: no terminal.  ``colours``: whether to use colours."""

    width: int | None = None
    colours: bool = False

    def painted(self, style: str, text: str) -> str:
        """Return the text in one of `STYLES` ("": as it is); unchanged where no colours are used."""
        if not (self.colours and style and text):
            return text
        from rich.color import ColorSystem
        from rich.style import Style

        return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)

    def table(self, columns: Sequence[TableColumn], rows: Rows, styles: Sequence[str] = ()) -> list[str]:
        """Return the lines of a table, with cells escaped.  ``styles``: one of `STYLES`, or "", per row."""
        return [line for block in self.blocks(columns, rows, styles) for line in block]

    def blocks(self, columns: Sequence[TableColumn], rows: Rows, styles: Sequence[str] = ()) -> list[list[str]]:
        """Return the blocks of a table: lines of the header, of each row, and of a note about columns left out."""
        rows = _escaped(rows)
        styles = [*styles, *[""] * (len(rows) - len(styles))]
        if self.width is None or len(rows) > LARGEST:
            lines = _plain(columns, rows)
            return [[self.painted(style, line)] for style, line in zip(("bold", *styles), lines, strict=True)]
        if not rows:
            return [[]]
        from carpool.cli.render.terminal import Grid, cell_len

        layout = fit(columns, rows, self.width, cell_len)
        titles = [column.title for column in columns]
        grid, styled = Grid(self.width, columns, layout), zip(("bold", *styles), (titles, *rows), strict=True)
        blocks = [[self.painted(style, line) for line in grid.block(row)] for style, row in styled]
        note = f"no room for {', '.join(layout.left_out)}: use a wider terminal, or a pipe"
        return [*blocks, self.wrapped([note], "dim")] if layout.left_out else blocks

    def wrapped(self, lines: Iterable[str], style: str = "", hanging: int | None = None) -> list[str]:
        """Wrap lines at the terminal's width; continuations are indented by ``hanging`` cells (None: a little).

        The lines must be escaped already, and without colours.
        """
        return [self.painted(style, part) for line in lines for part in self._parts(line, hanging)]

    def facts(self, title: str, pairs: Sequence[tuple[str, str]], verbatim: Sequence[str] = ()) -> list[str]:
        """Return a title and labelled texts below it; texts labelled as in ``verbatim`` are not wrapped."""
        width = max(len(label) for label, _ in pairs)
        lines = [self.painted("bold", title)]
        for label, text in pairs:
            line = f"  {label:<{width}}  {escaped(text)}"
            lines += [line] if label in verbatim else self._parts(line, width + 4)
        return lines

    def _parts(self, line: str, hanging: int | None = None) -> list[str]:
        if self.width is None or (line.isascii() and len(line) <= self.width):
            return [line]
        indent = len(line) - len(line.lstrip(" "))
        hanging = indent + HANGING if hanging is None else hanging
        if self.width <= 2 * hanging:
            return [line]
        first = hanging if line[:hanging].isascii() else indent
        wrapped = self._paragraph(line[first:], self.width - hanging)
        return [line[:first] + wrapped[0], *(" " * hanging + part for part in wrapped[1:])]

    def _paragraph(self, text: str, width: int) -> list[str]:
        """Wrap a text.  Words longer than a line stay whole: such words are paths or addresses, which are copied."""
        if text.isascii():
            import textwrap

            return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
        from carpool.cli.render.terminal import console, wrap

        return wrap(console(width, False), text, width)


def _escaped(rows: Rows) -> Rows:
    return [row if "".join(row).isprintable() else tuple(map(escaped, row)) for row in rows]


def _plain(columns: Sequence[TableColumn], rows: Rows) -> list[str]:
    shown = present(columns, rows) if rows else range(len(columns))
    if len(shown) < len(columns):
        columns, rows = [columns[n] for n in shown], [[row[n] for n in shown] for row in rows]
    titles = tuple(column.title for column in columns)
    widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
    # A pattern is several times faster than joining padded cells, which matters for ten thousand rows.
    pattern = (" " * GAP).join(_field(column, width) for column, width in zip(columns, widths, strict=True))
    return [pattern.format(*row).rstrip() for row in (titles, *rows)]


def _field(column: TableColumn, width: int) -> str:
    return f"{{:{'>' if column.right else '<'}{width}}}"


def output_for(stream: TextIO) -> Output:
    """Return the `Output` for a stream: https://no-color.org, TERM=dumb and pipes get no colours."""
    if not stream.isatty():
        return Output()
    # Present and not empty means no colour, whatever the value.
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Output(max(1, shutil.get_terminal_size().columns), wanted)


def stdout_output() -> Output:
    """Return the `Output` for standard output as it is now."""
    return output_for(sys.stdout)


def stderr_output() -> Output:
    """Return the `Output` for standard error as it is now."""
    return output_for(sys.stderr)


def shorten(text: str, width: int) -> str:
    """Cut a text to at most ``width`` characters; an ellipsis replaces the rest."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
