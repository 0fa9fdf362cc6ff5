"""What commands print, at 80, 120 and 200 columns, without colours and into a pipe: as kept in ``rendered/``."""

from __future__ import annotations

import unicodedata

import pytest

from tests.cli.rendered import COMMANDS, FILES, prepare, rendered
from tests.cli.standin import StandIn

NEW = "`python -m tests.cli.rendered` writes the files anew; read them before you commit them"


@pytest.mark.parametrize("name", COMMANDS)
def test_it_is_as_kept(standin: StandIn, name: str) -> None:
    prepare(standin)
    assert rendered(standin, name) == (FILES / f"{name}.txt").read_text(), NEW


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in FILES.iterdir()} == set(COMMANDS)


def cells(line: str) -> int:
    """Of a terminal: characters of East Asia are two wide."""
    plain = (
        line.replace("{bold}", "").replace("{dim}", "").replace("{red}", "").replace("{green}", "").replace("{}", "")
    )
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in plain)


@pytest.mark.parametrize("name", COMMANDS)
def test_lines_fit_their_terminal_and_only_colours_are_lost_without_them(name: str) -> None:
    sections = (FILES / f"{name}.txt").read_text().split("===== ")[1:]
    shown = {title.removesuffix(" ====="): body for title, _, body in (part.partition("\n") for part in sections)}
    copied = ("  command", "  directory")  # not wrapped, so that they can be copied
    for width in (80, 120, 200):
        lines = [line for line in shown[f"{width} columns"].split("\n") if not line.startswith(copied)]
        assert max(map(cells, lines)) <= width
    for mark in ("{bold}", "{dim}", "{red}", "{green}", "{}"):
        assert mark not in shown["80 columns, NO_COLOR"] and mark not in shown["pipe"]
        shown["80 columns"] = shown["80 columns"].replace(mark, "")
    assert shown["80 columns"] == shown["80 columns, NO_COLOR"]
