"""Text for people on a stream: colours, tables, wrapped lines.  Only a terminal gets what needs `rich`.

A pipe gets plain lines: every column, nothing shortened or wrapped, and no time lost with loading `rich`.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from carpool.cli.render.columns import GAP, Column, Layout, Rows, fit
from carpool.protocol.escaping import escaped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: Larger tables are written as into a pipe, also on a terminal: `rich` needs a quarter of a millisecond for a row.
LARGEST = 1000
INDENT = 4  # of what is written beneath a row
#: The terminal's own colours, which its user has chosen for a light or a dark background; never a background.
STYLES = ("bold", "dim", "green", "red")
_BLANKS = re.compile(r" +((?:\x1b\[0m)?)$")


@dataclass(frozen=True, slots=True)
class Output:
    """Where text goes.  ``width``: cells of the terminal; None: no terminal.  ``colours``: whether it gets any."""

    width: int | None = None
    colours: bool = False

    def painted(self, style: str, text: str) -> str:
        """The text in one of `STYLES` ("": as it is), where there are colours."""
        if not (self.colours and style and text):
            return text
        from rich.color import ColorSystem
        from rich.style import Style

        return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)

    def table(self, columns: Sequence[Column], rows: Rows, styles: Sequence[str] = ()) -> list[str]:
        """Lines of a table; what cannot be seen in a cell is escaped.  ``styles``: one of `STYLES`, or "", per row."""
        return [line for block in self.blocks(columns, rows, styles) for line in block]

    def blocks(self, columns: Sequence[Column], rows: Rows, styles: Sequence[str] = ()) -> list[list[str]]:
        """The same, as the lines of the header, those of each row, and those of a note about what is left out."""
        rows = [tuple(map(escaped, row)) for row in rows]
        styles = [*styles, *[""] * (len(rows) - len(styles))]
        if self.width is None or len(rows) > LARGEST:
            lines = _plain(columns, rows)
            return [[self.painted(style, line)] for style, line in zip(("bold", *styles), lines, strict=True)]
        if not rows:
            return [[]]
        from rich.cells import cell_len

        layout = fit(columns, rows, self.width, cell_len)
        titles = [column.title for column in columns]
        blocks = _Grid(self._console(), columns, layout).blocks([titles, *rows], ["bold", *styles])
        note = f"no room for {', '.join(layout.left_out)}: use a wider terminal, or a pipe"
        return [*blocks, self.wrapped([note], "dim")] if layout.left_out else blocks

    def wrapped(self, lines: Iterable[str], style: str = "", hanging: int | None = None) -> list[str]:
        """Lines that are longer than the terminal is wide go on below, indented by ``hanging`` cells (None: a little).

        The lines must be escaped already, and without colours.
        """
        return [self.painted(style, part) for line in lines for part in self._parts(line, hanging)]

    def facts(self, title: str, pairs: Sequence[tuple[str, str]], verbatim: Sequence[str] = ()) -> list[str]:
        """A title and below it labels with texts.  Those labelled as in ``verbatim`` are not wrapped, to be copied."""
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
        hanging = indent + INDENT // 2 if hanging is None else hanging
        if self.width <= 2 * hanging:
            return [line]
        first = hanging if line[:hanging].isascii() else indent
        wrapped = _wrap(self._console(), line[first:], self.width - hanging)
        return [line[:first] + wrapped[0], *(" " * hanging + part for part in wrapped[1:])]

    def _console(self) -> Console:
        from rich.console import Console

        return Console(
            color_system="standard" if self.colours else None, no_color=False, force_terminal=True, width=self.width,
            file=io.StringIO(), markup=False, emoji=False, highlight=False, legacy_windows=False,
        )  # fmt: skip


class _Grid:
    """Rows as `rich` lays them out."""

    def __init__(self, console: Console, columns: Sequence[Column], layout: Layout) -> None:
        from rich.table import Table

        self._console, self._layout = console, layout
        self._prose = layout.beneath if layout.beneath is not None else _last_prose(columns, layout)
        self._table = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
        for n, width in layout.widths.items():
            justify = "right" if columns[n].right else "left"
            self._table.add_column(width=width, no_wrap=n != self._prose, justify=justify, overflow="ellipsis")  # type: ignore[arg-type]

    def blocks(self, rows: Rows, styles: Sequence[str]) -> list[list[str]]:
        from rich.text import Text

        heights, beneath = [], []
        for row, style in zip(rows, styles, strict=True):
            cells, below = self._cells(row)
            self._table.add_row(*(Text(cell, end="") for cell in cells), style=style)
            heights.append(max(cell.count("\n") for cell in cells) + 1)
            beneath.append([Text(" " * INDENT + line, style=style) for line in below])
        lines = iter(self._text(self._table))
        return [
            [next(lines) for _ in range(height)] + [line for text in below for line in self._text(text)]
            for height, below in zip(heights, beneath, strict=True)
        ]

    def _cells(self, row: Sequence[str]) -> tuple[list[str], list[str]]:
        """The cells of a row, and the lines beneath the row."""
        below = self._layout.beneath
        cells = ["\n".join(_wrap(self._console, row[n], w)) if n == self._prose else row[n] for n, w in self._widths()]
        under = (
            [] if below is None or not row[below] else _wrap(self._console, row[below], self._console.width - INDENT)
        )
        return cells, under

    def _widths(self) -> Iterable[tuple[int, int]]:
        return self._layout.widths.items()

    def _text(self, what: RenderableType) -> list[str]:
        from rich.segment import Segment, Segments

        self._console.file = io.StringIO()
        # Cells of one style become one piece: colours are switched on once for a line, not for each cell.
        self._console.print(Segments(Segment.simplify(self._console.render(what))), end="")
        return [_BLANKS.sub(r"\1", line) for line in self._console.file.getvalue().rstrip("\n").split("\n")]


def _last_prose(columns: Sequence[Column], layout: Layout) -> int | None:
    return next((n for n in layout.widths if columns[n].prose), None)


def _wrap(console: Console, text: str, width: int) -> list[str]:
    from rich.text import Text

    return [line.plain.rstrip() for line in Text(text).wrap(console, width)] or [""]


def _plain(columns: Sequence[Column], rows: Rows) -> list[str]:
    titles = tuple(column.title for column in columns)
    widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
    # A pattern is several times faster than joining padded cells, which ten thousand rows notice.
    pattern = (" " * GAP).join(_field(column, width) for column, width in zip(columns, widths, strict=True))
    return [pattern.format(*row).rstrip() for row in (titles, *rows)]


def _field(column: Column, width: int) -> str:
    return f"{{:{'>' if column.right else '<'}{width}}}"


def output_for(stream: TextIO) -> Output:
    """What a stream takes: https://no-color.org, TERM=dumb and pipes get no colours."""
    if not stream.isatty():
        return Output()
    # Present and not empty means no colour, whatever the value.
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Output(max(1, shutil.get_terminal_size().columns), wanted)


def stdout_output() -> Output:
    """Standard output, as it is now."""
    return output_for(sys.stdout)


def stderr_output() -> Output:
    """Standard error, as it is now."""
    return output_for(sys.stderr)


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters; what is cut off is replaced by an ellipsis."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
