"""Choice of the columns that fit a terminal, and of their widths: a pure function of cells and widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

GAP = 2
#: Prose in fewer cells than this is hard to read: then a row's prose is written beneath the row.
PROSE = 30
ABSENT = ("", "-")
Rows = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """``least``: cells that the column may shrink to (None: never narrower than its content).

    ``gives_way``: where there is no room, the column with the largest number is left out first; 0: never.
    ``prose``: sentences, wrapped and always shown whole; one column at most, the last.
    """

    title: str
    right: bool = False
    least: int | None = None
    gives_way: int = 0
    prose: bool = False


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Positions of the columns that a row shows, with their widths in cells."""

    widths: dict[int, int]
    beneath: int | None  # the position of the prose that is written beneath its row
    left_out: tuple[str, ...]  # titles of columns for which there is no room


def present(columns: Sequence[TableColumn], rows: Rows) -> list[int]:
    """Return the positions of the columns that have content."""
    return [n for n in range(len(columns)) if any(row[n] not in ABSENT for row in rows)]


def fit(columns: Sequence[TableColumn], rows: Rows, width: int, cells: Callable[[str], int]) -> TableLayout:
    """Return the layout for a terminal of ``width`` cells; ``cells`` measures a text.

    Empty columns vanish.  Then the columns with a ``least`` shrink, then prose goes beneath the rows, then columns
    that may give way are left out.
    """
    natural = _natural(columns, rows, cells)
    prose = next((n for n in natural if columns[n].prose), None)
    wanted = 0 if prose is None else natural.pop(prose)
    least = {n: min(size, columns[n].least or size) for n, size in natural.items()}
    beside = prose is not None and _total(least) + min(wanted, PROSE) + GAP <= width
    least, left_out = _leave_out(columns, least, width)
    _squeeze(least, width)
    room = width - _total(least)
    if prose is None or not beside:
        return TableLayout(_grown(least, natural, room), prose, left_out)
    wanted = min(wanted, room - GAP)
    return TableLayout(_grown(least, natural, room - GAP - wanted) | {prose: wanted}, None, left_out)


def _natural(columns: Sequence[TableColumn], rows: Rows, cells: Callable[[str], int]) -> dict[int, int]:
    return {n: max(cells(columns[n].title), *(cells(row[n]) for row in rows)) for n in present(columns, rows)}


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + GAP * max(0, len(widths) - 1)


def _leave_out(
    columns: Sequence[TableColumn], least: dict[int, int], width: int
) -> tuple[dict[int, int], tuple[str, ...]]:
    """Return the widths of columns that have room, from ``least``, and the titles of columns that are left out."""
    kept = dict(least)
    for n in sorted(least, key=lambda n: -columns[n].gives_way):
        if columns[n].gives_way and _total(kept) > width:
            del kept[n]
    for n in sorted(least.keys() - kept.keys(), key=lambda n: columns[n].gives_way):
        if _total(kept | {n: least[n]}) <= width:  # a wider column has given way after it
            kept[n] = least[n]
    return dict(sorted(kept.items())), tuple(columns[n].title for n in least if n not in kept)


def _squeeze(widths: dict[int, int], width: int) -> None:
    """Narrow the widest columns until all have room; an ellipsis stands for text that is cut off."""
    for _ in range(_total(widths) - width):
        widest = max(widths, key=lambda n: widths[n])
        widths[widest] = max(1, widths[widest] - 1)


def _grown(least: dict[int, int], natural: dict[int, int], room: int) -> dict[int, int]:
    """Widths between the least and the natural ones, with ``room`` more cells in all."""
    widths = dict(least)
    for n, size in least.items():
        more = max(0, min(room, natural[n] - size))
        widths[n] += more
        room -= more
    return widths
