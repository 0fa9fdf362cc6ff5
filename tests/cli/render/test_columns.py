"""Which columns a terminal has room for, and how wide."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from carpool.cli.render.columns import GAP, PROSE, TableColumn, TableLayout, fit

COLUMNS = [
    TableColumn("ID"),
    TableColumn("NAME", least=10),
    TableColumn("TURN", gives_way=2),
    TableColumn("MEMORY", gives_way=1),
    TableColumn("WHY", prose=True),
]
ROW = ("1", "a-name-of-twenty-char", "yes", "64 MiB / 32 MiB", "waiting for memory: needs 3.1 GiB of host0")


def laid_out(width: int, row: tuple[str, ...] = ROW) -> TableLayout:
    return fit(COLUMNS, [row], width, len)


def test_first_the_name_shrinks_then_why_goes_beneath_then_columns_give_way() -> None:
    whole = laid_out(95)
    assert whole.widths == {0: 2, 1: 21, 2: 4, 3: 15, 4: 42} and whole.beneath is None
    assert laid_out(90).widths == {0: 2, 1: 19, 2: 4, 3: 15, 4: 42}
    assert laid_out(71).widths == {0: 2, 1: 10, 2: 4, 3: 15, 4: 32}
    assert laid_out(68).beneath == 4 and laid_out(68).widths == {0: 2, 1: 21, 2: 4, 3: 15}
    assert laid_out(36).left_out == ("TURN",) and laid_out(24).left_out == ("MEMORY",)
    assert laid_out(19).left_out == ("TURN", "MEMORY")


def test_columns_without_content_vanish() -> None:
    assert laid_out(95, ("1", "a", "-", "", "")) == TableLayout({0: 2, 1: 4}, None, ())


def test_a_wide_column_that_gives_way_takes_no_other_along() -> None:
    columns = [*COLUMNS[:3], TableColumn("ENDED", gives_way=1)]
    layout = fit(columns, [("1", "a", "yes", "x" * 90)], 80, len)
    assert layout.left_out == ("ENDED",) and [*layout.widths] == [0, 1, 2]


@given(st.integers(8, 300), st.lists(st.tuples(*[st.text("ab ", max_size=40)] * len(COLUMNS)), min_size=1))
def test_there_is_always_room_and_prose_is_never_lost(width: int, rows: list[tuple[str, ...]]) -> None:
    layout = fit(COLUMNS, rows, width, len)
    assert sum(layout.widths.values()) + GAP * (len(layout.widths) - 1) <= width
    if any(row[4] not in ("", "-") for row in rows):
        wide = layout.widths.get(4, 0)
        assert layout.beneath == 4 or wide >= min(PROSE, max(len(row[4]) for row in rows))
